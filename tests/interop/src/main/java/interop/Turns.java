package interop;

import java.io.FileOutputStream;
import java.io.RandomAccessFile;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import org.redisson.RedissonMultiLock;
import org.redisson.RedissonRedLock;
import org.redisson.api.RCountDownLatch;
import org.redisson.api.RLock;
import org.redisson.api.RPermitExpirableSemaphore;
import org.redisson.api.RSemaphore;
import org.redisson.api.RedissonClient;

/**
 * Turns on a file that only the lock protects: a number, a byte that stops all players, and one set
 * when two were inside.
 */
final class Turns {
    private interface Step {
        void run() throws Exception;
    }

    private static final int STOP = 8;
    private static final int BROKEN = 9;

    private final RandomAccessFile file;
    /**
     * "read": only reads; "mark": leaves a mark, for a process that may be killed; otherwise
     * counts.
     */
    private final String mode;
    private long turns;
    private long longestWait;

    private Turns(RandomAccessFile file, String mode) {
        this.file = file;
        this.mode = mode;
    }

    /**
     * Arguments: the file and the mode. Returns the turns and the longest wait, in milliseconds.
     */
    static Object take(Object object, String[] args) throws Exception {
        try (RandomAccessFile file = new RandomAccessFile(args[0], "rw")) {
            Turns turns = new Turns(file, args[1]);
            while (!turns.isStopped()) {
                try {
                    turns.once(object);
                } catch (WrongCount e) {
                    throw e;
                } catch (Exception e) {
                    // The servers of some tests are disturbed; an intended step is retried until it
                    // succeeds.
                    Thread.sleep(5);
                }
            }
            return turns.turns + " " + turns.longestWait;
        }
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
                    throw new WrongCount(been + " in round " + round);
                }
            }
        }
        return rounds;
    }

    private boolean isStopped() throws Exception {
        file.seek(STOP);
        return file.readByte() != 0;
    }

    private void once(Object object) throws Exception {
        long start = System.nanoTime();
        if (object instanceof RLock lock) {
            try {
                lock.lock();
                use(start);
            } finally {
                // Also releases holds whose acquire threw, or was sent and granted twice.
                surely(() -> release(lock));
            }
        } else if (object instanceof RSemaphore semaphore) {
            semaphore.acquire();
            use(start);
            semaphore.release();
        } else {
            RPermitExpirableSemaphore semaphore = (RPermitExpirableSemaphore) object;
            // With a lease: a permit whose id was lost with a reply becomes available again.
            String id = semaphore.acquire(10, TimeUnit.SECONDS);
            use(start);
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

    private void use(long start) throws Exception {
        longestWait = Math.max(longestWait, (System.nanoTime() - start) / 1_000_000);
        file.seek(0);
        long before = file.readLong();
        if (mode.equals("mark")) {
            before = ThreadLocalRandom.current().nextLong();
            file.seek(0);
            file.writeLong(before);
        }
        Thread.yield();
        file.seek(0);
        if (mode.equals("write")) {
            file.writeLong(before + 1);
        } else {
            long after = file.readLong();
            if (after != before) {
                file.seek(BROKEN);
                file.writeByte(1);
                throw new WrongCount(before + " became " + after);
            }
        }
        turns++;
    }

    private static final class WrongCount extends RuntimeException {
        WrongCount(String message) {
            super(message);
        }
    }
}
