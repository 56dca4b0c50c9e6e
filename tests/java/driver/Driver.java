package driver;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.util.Arrays;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;

/**
 * Runs the commands on its standard input, one per line: THREAD PRIMITIVE NAME METHOD [ARGUMENTS].
 * Each gets one line of answer: THREAD and the result of the method, or THREAD, an exclamation mark
 * and the exception. Commands of one thread run one after another, in the same Java thread, by
 * which a library identifies a holder.
 */
public final class Driver {
    /** The objects of a library. */
    public interface Objects {
        Object run(String primitive, String name, String method, String[] args) throws Exception;
    }

    private final PrintStream answers = System.out;

    public Driver() {
        // Any other output must not interrupt the lines of answers.
        System.setOut(System.err);
    }

    /** The arguments after the first, which are settings as NAME=VALUE. */
    public static Map<String, String> settings(String[] args) {
        Map<String, String> settings = new LinkedHashMap<>();
        for (String setting : Arrays.asList(args).subList(1, args.length)) {
            String[] parts = setting.split("=", 2);
            settings.put(parts[0], parts[1]);
        }
        return settings;
    }

    /** Returns at the end of the input. */
    public void run(Objects objects) throws Exception {
        Map<String, ExecutorService> threads = new HashMap<>();
        say("ready");
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null && !line.equals("end"); line = lines.readLine()) {
            String[] words = line.split(" ");
            threads.computeIfAbsent(words[0], name -> Executors.newSingleThreadExecutor())
                    .execute(() -> say(words[0] + " " + answer(objects, words)));
        }
    }

    private static String answer(Objects objects, String[] words) {
        try {
            String[] args = Arrays.copyOfRange(words, 4, words.length);
            return String.valueOf(objects.run(words[1], words[2], words[3], args));
        } catch (Throwable e) {
            return ("!" + e).replace('\n', ' ').replace('\r', ' ');
        }
    }

    private void say(String line) {
        synchronized (answers) {
            answers.println(line);
            answers.flush();
        }
    }
}
