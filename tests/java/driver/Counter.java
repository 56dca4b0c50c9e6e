package driver;

import java.io.RandomAccessFile;
import java.util.concurrent.ThreadLocalRandom;

/**
 * A file that only the lock protects: a number, a byte that stops all players, and one set when two
 * were inside.
 */
public final class Counter {
    /** Acquires the lock, uses the counter, and releases the lock. */
    public interface Turn {
        void take(Counter counter) throws Exception;
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
    private long start;
    private long longestWait;

    private Counter(RandomAccessFile file, String mode) {
        this.file = file;
        this.mode = mode;
    }

    /**
     * Takes turns until all players are stopped. Arguments: the file and the mode. Returns the
     * turns and the longest wait, in milliseconds.
     */
    public static Object takeTurns(String[] args, Turn turn) throws Exception {
        try (RandomAccessFile file = new RandomAccessFile(args[0], "rw")) {
            Counter counter = new Counter(file, args[1]);
            while (!counter.isStopped()) {
                counter.start = System.nanoTime();
                turn.take(counter);
            }
            return counter.turns + " " + counter.longestWait;
        }
    }

    private boolean isStopped() throws Exception {
        file.seek(STOP);
        return file.readByte() != 0;
    }

    /** Called while the lock is held. */
    public void use() throws Exception {
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

    /** Two were inside, or one was too early. */
    public static final class WrongCount extends RuntimeException {
        public WrongCount(String message) {
            super(message);
        }
    }
}
