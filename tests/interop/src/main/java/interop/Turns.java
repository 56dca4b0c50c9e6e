package interop;

import java.io.RandomAccessFile;
import java.util.concurrent.ThreadLocalRandom;
import org.redisson.RedissonMultiLock;
import org.redisson.api.RLock;
import org.redisson.api.RPermitExpirableSemaphore;
import org.redisson.api.RSemaphore;

/** Turns at a counter outside of Redis that only the lock protects: a file with one number. */
final class Turns {
    private interface Step {
        void run() throws Exception;
    }

    private final RandomAccessFile file;
    /** "read": it only looks; "mark": it leaves a mark, for a process that may be killed; else it counts. */
    private final String mode;
    private long turns;

    private Turns(RandomAccessFile file, String mode) {
        this.file = file;
        this.mode = mode;
    }

    /** Arguments: the file, for how many milliseconds, and the mode. Returns the turns. */
    static Object take(Object object, String[] args) throws Exception {
        long end = System.nanoTime() + Long.parseLong(args[1]) * 1_000_000;
        try (RandomAccessFile file = new RandomAccessFile(args[0], "rw")) {
            Turns turns = new Turns(file, args[2]);
            while (System.nanoTime() < end) {
                try {
                    turns.once(object);
                } catch (WrongCount e) {
                    throw e;
                } catch (Exception e) {
                    // The servers of some tests have a hard time; what was meant to happen is tried until it did.
                    Thread.sleep(5);
                }
            }
            return turns.turns;
        }
    }

    private void once(Object object) throws Exception {
        if (object instanceof RLock lock) {
            try {
                lock.lock();
                use();
            } finally {
                // Also what was taken although it threw, and twice because it was sent twice.
                surely(() -> release(lock));
            }
        } else if (object instanceof RSemaphore semaphore) {
            semaphore.acquire();
            use();
            semaphore.release();
        } else {
            RPermitExpirableSemaphore semaphore = (RPermitExpirableSemaphore) object;
            String id = semaphore.acquire();
            use();
            surely(() -> semaphore.tryRelease(id));
        }
    }

    private static void release(RLock lock) {
        if (lock instanceof RedissonMultiLock) {
            lock.unlock();
            return;
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

    private void use() throws Exception {
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
