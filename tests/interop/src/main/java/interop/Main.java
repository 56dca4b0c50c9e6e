package interop;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import org.redisson.Redisson;
import org.redisson.api.RedissonClient;

/**
 * Runs the commands on its standard input, one per line: THREAD PRIMITIVE NAME METHOD [ARGUMENTS].
 * Each gets one line of answer: THREAD and the result of the method, or THREAD, an exclamation mark
 * and the exception. Commands of one thread run one after another, in the same Java thread, by
 * which Redisson identifies a holder.
 *
 * <p>Arguments: the address, or several separated by commas; then settings as NAME=VALUE ({@link
 * Servers}). The end of its input ends it.
 */
public final class Main {
    public static void main(String[] args) throws Exception {
        // Any other output must not interrupt the lines of answers.
        PrintStream answers = System.out;
        System.setOut(System.err);

        Map<String, String> settings = new LinkedHashMap<>();
        for (String setting : Arrays.asList(args).subList(1, args.length)) {
            String[] parts = setting.split("=", 2);
            settings.put(parts[0], parts[1]);
        }
        List<RedissonClient> clients = new ArrayList<>();
        Servers.configs(args[0].split(","), settings).forEach(config -> clients.add(Redisson.create(config)));
        Objects objects = new Objects(clients);
        Map<String, ExecutorService> threads = new HashMap<>();
        say(answers, "ready");
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null && !line.equals("end"); line = lines.readLine()) {
            String[] words = line.split(" ");
            threads.computeIfAbsent(words[0], name -> Executors.newSingleThreadExecutor())
                    .execute(() -> say(answers, words[0] + " " + answer(objects, words)));
        }
        // Redisson ends its subscriptions only on shutdown.
        clients.forEach(RedissonClient::shutdown);
        System.exit(0);
    }

    private static String answer(Objects objects, String[] words) {
        try {
            String[] args = Arrays.copyOfRange(words, 4, words.length);
            return String.valueOf(objects.run(words[1], words[2], words[3], args));
        } catch (Throwable e) {
            return ("!" + e).replace('\n', ' ').replace('\r', ' ');
        }
    }

    private static void say(PrintStream answers, String line) {
        synchronized (answers) {
            answers.println(line);
            answers.flush();
        }
    }
}
