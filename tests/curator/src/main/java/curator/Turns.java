package curator;

import java.io.RandomAccessFile;
import java.util.concurrent.ThreadLocalRandom;
import org.apache.curator.framework.recipes.locks.InterProcessLock;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreV2;
import org.apache.curator.framework.recipes.locks.Lease;

/**
 * Turns on a file that only the lock protects: a number, a byte that stops all players, and one set
 * when two were inside.
 */
final class Turns {
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
                turns.once(object);
            }
            return turns.turns + " " + turns.longestWait;
        }
    }

    private boolean isStopped() throws Exception {
        file.seek(STOP);
        return file.readByte() != 0;
    }

    private void once(Object object) throws Exception {
        long start = System.nanoTime();
        if (object instanceof InterProcessLock lock) {
            lock.acquire();
            try {
                use(start);
            } finally {
                lock.release();
            }
        } else {
            InterProcessSemaphoreV2 semaphore = (InterProcessSemaphoreV2) object;
            Lease lease = semaphore.acquire();
            try {
                use(start);
            } finally {
                semaphore.returnLease(lease);
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
                throw new IllegalStateException("two inside: " + before + " became " + after);
            }
        }
        turns++;
    }
}
