package curator;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;

/**
 * Cycles of lock and unlock, and hand-offs between two sessions. Answers with NAME=VALUE, separated
 * by spaces.
 */
final class Bench {
    private final Link link;
    private final String path;

    Bench(Link link, String name) {
        this.link = link;
        this.path = "/" + name;
    }

    /**
     * "own THREADS MILLIS": each thread uses a lock of its own. "one THREADS MILLIS": all threads
     * use one lock. "handoff TIMES": the time from before the release in one session until after
     * the acquire in another.
     */
    Object run(String method, String[] args) throws Exception {
        return switch (method) {
            case "own" -> cycles(Integer.parseInt(args[0]), Long.parseLong(args[1]), true);
            case "one" -> cycles(Integer.parseInt(args[0]), Long.parseLong(args[1]), false);
            case "handoff" -> handOff(Integer.parseInt(args[0]));
            default -> throw new IllegalArgumentException(method);
        };
    }

    private record Tally(long cycles, long longestWait) {}

    private String cycles(int threads, long millis, boolean own) throws InterruptedException, ExecutionException {
        ExecutorService pool = Executors.newFixedThreadPool(threads);
        CountDownLatch ready = new CountDownLatch(threads);
        CountDownLatch start = new CountDownLatch(1);
        List<Future<Tally>> all = new ArrayList<>();
        for (int thread = 0; thread < threads; thread++) {
            InterProcessMutex lock = new InterProcessMutex(link.client, own ? path + "-" + thread : path);
            all.add(pool.submit(() -> {
                // The directory exists, and the code is warm.
                lock.acquire();
                lock.release();
                ready.countDown();
                start.await();
                long began = System.nanoTime();
                long cycles = 0;
                long longest = 0;
                for (long now = began; now - began < millis * 1_000_000; cycles++) {
                    lock.acquire();
                    long waited = System.nanoTime() - now;
                    lock.release();
                    longest = Math.max(longest, waited);
                    now = System.nanoTime();
                }
                return new Tally(cycles, longest);
            }));
        }
        ready.await();
        long began = System.nanoTime();
        start.countDown();
        long sum = 0;
        long longest = 0;
        double squares = 0;
        for (Future<Tally> each : all) {
            Tally tally = each.get();
            sum += tally.cycles;
            squares += (double) tally.cycles * tally.cycles;
            longest = Math.max(longest, tally.longestWait);
        }
        double seconds = (System.nanoTime() - began) / 1e9;
        pool.shutdown();
        double jain = squares == 0 ? 1 : (double) sum * sum / (threads * squares);
        return "rate=%.1f jain=%.4f longest_us=%d".formatted(sum / seconds, jain, longest / 1_000);
    }

    private String handOff(int times) throws Exception {
        try (CuratorFramework other = link.connect()) {
            InterProcessMutex[] sides = {new InterProcessMutex(link.client, path), new InterProcessMutex(other, path)};
            ExecutorService[] threads = {Executors.newSingleThreadExecutor(), Executors.newSingleThreadExecutor()};
            long[] took = new long[times];
            threads[0].submit(() -> acquire(sides[0])).get();
            for (int turn = 0; turn < times; turn++) {
                int from = turn % 2;
                int to = 1 - from;
                Future<Long> next = threads[to].submit(() -> acquire(sides[to]));
                while (sides[from].getParticipantNodes().size() < 2) {
                    Thread.sleep(1);
                }
                // It sets its watch after it becomes visible in the list.
                Thread.sleep(5);
                long released = threads[from].submit(() -> release(sides[from])).get();
                took[turn] = next.get() - released;
            }
            threads[times % 2].submit(() -> release(sides[times % 2])).get();
            for (ExecutorService thread : threads) {
                thread.shutdown();
                thread.awaitTermination(1, TimeUnit.SECONDS);
            }
            Arrays.sort(took);
            return "p50_us=%d p99_us=%d".formatted(took[times / 2] / 1_000, took[times * 99 / 100] / 1_000);
        }
    }

    /** Returns the time at which it had acquired it. */
    private static long acquire(InterProcessMutex lock) throws Exception {
        lock.acquire();
        return System.nanoTime();
    }

    /** Returns the time at which it began. */
    private static long release(InterProcessMutex lock) throws Exception {
        long now = System.nanoTime();
        lock.release();
        return now;
    }
}
