package interop;

import driver.Counter;
import java.io.FileOutputStream;
import java.util.concurrent.TimeUnit;
import org.redisson.RedissonMultiLock;
import org.redisson.RedissonRedLock;
import org.redisson.api.RCountDownLatch;
import org.redisson.api.RLock;
import org.redisson.api.RPermitExpirableSemaphore;
import org.redisson.api.RSemaphore;
import org.redisson.api.RedissonClient;

/** Turns on a counter, and rounds through latches, while the servers may be disturbed. */
final class Turns {
    private interface Step {
        void run() throws Exception;
    }

    private Turns() {}

    /** See {@link Counter#takeTurns}. */
    static Object take(Object object, String[] args) throws Exception {
        return Counter.takeTurns(args, counter -> {
            try {
                once(object, counter);
            } catch (Counter.WrongCount e) {
                throw e;
            } catch (Exception e) {
                // An intended step is retried until it succeeds.
                Thread.sleep(5);
            }
        });
    }

    /**
     * Arguments: a file that grows by a byte for each arrival, the rounds, and the number of
     * arrivals in each. Returns the rounds.
     */
    static Object rounds(RedissonClient client, String name, String[] args) throws Exception {
        int rounds = Integer.parseInt(args[1]);
        long players = Long.parseLong(args[2]);
        try (FileOutputStream file = new FileOutputStream(args[0], true)) {
            for (int round = 0; round < rounds; round++) {
                RCountDownLatch latch = client.getCountDownLatch(name + "-" + round);
                file.write('.');
                latch.countDown();
                latch.await();
                long been = file.getChannel().size();
                if (been < players * (round + 1)) {
                    throw new Counter.WrongCount(been + " in round " + round);
                }
            }
        }
        return rounds;
    }

    private static void once(Object object, Counter counter) throws Exception {
        if (object instanceof RLock lock) {
            try {
                lock.lock();
                counter.use();
            } finally {
                // Also releases holds whose acquire threw, or was sent and granted twice.
                surely(() -> release(lock));
            }
        } else if (object instanceof RSemaphore semaphore) {
            semaphore.acquire();
            counter.use();
            semaphore.release();
        } else {
            RPermitExpirableSemaphore semaphore = (RPermitExpirableSemaphore) object;
            // With a lease: a permit whose id was lost with a reply becomes available again.
            String id = semaphore.acquire(10, TimeUnit.SECONDS);
            counter.use();
            surely(() -> semaphore.tryRelease(id));
        }
    }

    private static void release(RLock lock) {
        if (lock instanceof RedissonRedLock) {
            // It ignores the locks that it does not hold.
            lock.unlock();
            return;
        }
        if (lock instanceof RedissonMultiLock) {
            // It has no method to check; it may hold one lock more often than another.
            try {
                while (true) {
                    lock.unlock();
                }
            } catch (IllegalMonitorStateException e) {
                return;
            }
        }
        while (lock.isHeldByCurrentThread()) {
            lock.unlock();
        }
    }

    private static void surely(Step step) throws Exception {
        while (true) {
            try {
                step.run();
                return;
            } catch (Exception e) {
                Thread.sleep(5);
            }
        }
    }
}
