package curator;

import driver.Counter;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.recipes.barriers.DistributedBarrier;
import org.apache.curator.framework.recipes.locks.InterProcessLock;
import org.apache.curator.framework.recipes.locks.InterProcessMultiLock;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreMutex;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreV2;
import org.apache.curator.framework.recipes.locks.Lease;
import org.apache.curator.framework.recipes.locks.Revoker;
import org.apache.curator.framework.recipes.shared.SharedCount;

/**
 * Curator's recipes and the operations of the tests. Recipes are kept, as in applications, because
 * they have state.
 */
final class Objects {
    private static final TimeUnit MS = TimeUnit.MILLISECONDS;

    private final Link link;
    private final CuratorFramework client;
    private final Map<String, Object> kept = new ConcurrentHashMap<>();
    private final Map<String, AtomicInteger> revocations = new ConcurrentHashMap<>();
    /** The leases of semaphores by the names of their nodes. */
    private final Map<String, Lease> leases = new ConcurrentHashMap<>();

    Objects(Link link) {
        this.link = link;
        this.client = link.client;
    }

    Object run(String primitive, String name, String method, String[] args) throws Exception {
        if (primitive.equals("client")) {
            return client(method);
        }
        if (primitive.equals("bench")) {
            return new Bench(link, name).run(method, args);
        }
        String key = primitive + " " + name;
        if (!kept.containsKey(key)) {
            kept.putIfAbsent(key, object(primitive, name));
        }
        Object object = kept.get(key);
        if (method.equals("turns")) {
            return Counter.takeTurns(args, counter -> turn(object, counter));
        }
        if (object instanceof InterProcessLock lock) {
            return lock(lock, name, method, args);
        }
        if (object instanceof InterProcessSemaphoreV2 semaphore) {
            return semaphore(semaphore, method, args);
        }
        if (object instanceof Candidate candidate) {
            return candidate.run(method);
        }
        if (object instanceof SharedCount count) {
            return count(count, method, args);
        }
        return barrier((DistributedBarrier) object, method, args);
    }

    private static void turn(Object object, Counter counter) throws Exception {
        if (object instanceof InterProcessLock lock) {
            lock.acquire();
            try {
                counter.use();
            } finally {
                lock.release();
            }
        } else {
            InterProcessSemaphoreV2 semaphore = (InterProcessSemaphoreV2) object;
            Lease lease = semaphore.acquire();
            try {
                counter.use();
            } finally {
                semaphore.returnLease(lease);
            }
        }
    }

    /**
     * For "multi", the name is a list of names. For "semaphore", the number of permits may follow a
     * colon.
     */
    private Object object(String primitive, String name) {
        String path = "/" + name;
        return switch (primitive) {
            case "mutex", "fair" -> new InterProcessMutex(client, path);
            case "read" -> readWrite(name).readLock();
            case "write" -> readWrite(name).writeLock();
            case "multi" ->
                new InterProcessMultiLock(client, Arrays.stream(name.split(",")).map(each -> "/" + each).toList());
            case "semaphore" -> semaphore(path);
            case "semaphore-mutex" -> new InterProcessSemaphoreMutex(client, path);
            case "count" -> started(new SharedCount(client, path, 0));
            case "selector" -> new Candidate(client, path);
            case "barrier" -> new DistributedBarrier(client, path);
            default -> throw new IllegalArgumentException(primitive);
        };
    }

    /** Both sides must come from one object, or a thread could not read inside its own write. */
    private InterProcessReadWriteLock readWrite(String name) {
        return (InterProcessReadWriteLock)
                kept.computeIfAbsent("rw " + name, key -> new InterProcessReadWriteLock(client, "/" + name));
    }

    private InterProcessSemaphoreV2 semaphore(String path) {
        int colon = path.indexOf(':');
        if (colon >= 0) {
            int permits = Integer.parseInt(path.substring(colon + 1));
            return new InterProcessSemaphoreV2(client, path.substring(0, colon), permits);
        }
        return new InterProcessSemaphoreV2(client, path, started(new SharedCount(client, path + "/permits", 0)));
    }

    private static SharedCount started(SharedCount count) {
        try {
            count.start();
            return count;
        } catch (Exception e) {
            throw new IllegalStateException(e);
        }
    }

    private Object client(String method) throws Exception {
        switch (method) {
            case "changes":
                return link.changes();
            case "clock":
                return System.nanoTime();
            case "session":
                return Long.toUnsignedString(client.getZookeeperClient().getZooKeeper().getSessionId());
            case "timeout":
                return client.getZookeeperClient().getZooKeeper().getSessionTimeout();
            default:
                throw new IllegalArgumentException(method);
        }
    }

    private Object lock(InterProcessLock lock, String name, String method, String[] args) throws Exception {
        switch (method) {
            case "lock":
                lock.acquire();
                return "ok";
            case "tryLock":
                return lock.acquire(Long.parseLong(args[0]), MS);
            case "unlock":
                lock.release();
                return "ok";
            case "isHeldHere":
                return lock.isAcquiredInThisProcess();
            case "believes":
                return believes(lock, Long.parseLong(args[0]), args.length > 1 && args[1].equals("cautious"));
            default:
                return mutex((InterProcessMutex) lock, name, method, args);
        }
    }

    private Object mutex(InterProcessMutex lock, String name, String method, String[] args) throws Exception {
        switch (method) {
            case "isHeld":
                return lock.isOwnedByCurrentThread();
            case "nodes":
                return String.join(" ", lock.getParticipantNodes());
            case "revocable":
                AtomicInteger count = revocations.computeIfAbsent(name, key -> new AtomicInteger());
                lock.makeRevocable(revoked -> count.incrementAndGet());
                return "ok";
            case "revoked":
                return revocations.get(name).get();
            case "revoke":
                Revoker.attemptRevoke(client, args[0]);
                return "ok";
            default:
                throw new IllegalArgumentException(method);
        }
    }

    /**
     * Takes the lock and keeps it for this many milliseconds, or until the state of the connection
     * reports it lost, as Curator advises. Returns the time in which this thread believed to hold
     * it, on the clock of {@link Link}. A lost lock is not released, because that would wait for a
     * server.
     */
    private String believes(InterProcessLock lock, long millis, boolean cautious) throws Exception {
        lock.acquire();
        long from = System.nanoTime();
        long to = from;
        while (to - from < millis * 1_000_000) {
            if (!link.isBelieved(cautious)) {
                return from + " " + to;
            }
            to = System.nanoTime();
            Thread.sleep(1);
        }
        lock.release();
        return from + " " + to;
    }

    private Object semaphore(InterProcessSemaphoreV2 semaphore, String method, String[] args) throws Exception {
        switch (method) {
            case "acquire":
                Lease lease = args.length > 0 ? semaphore.acquire(Long.parseLong(args[0]), MS) : semaphore.acquire();
                if (lease == null) {
                    return "none";
                }
                leases.put(lease.getNodeName(), lease);
                return lease.getNodeName();
            case "release":
                semaphore.returnLease(leases.remove(args[0]));
                return "ok";
            case "nodes":
                return String.join(" ", List.copyOf(semaphore.getParticipantNodes()));
            default:
                throw new IllegalArgumentException(method);
        }
    }

    private static Object count(SharedCount count, String method, String[] args) throws Exception {
        switch (method) {
            case "get":
                return count.getCount();
            case "set":
                count.setCount(Integer.parseInt(args[0]));
                return "ok";
            case "trySet":
                return count.trySetCount(count.getVersionedValue(), Integer.parseInt(args[0]));
            default:
                throw new IllegalArgumentException(method);
        }
    }

    private static Object barrier(DistributedBarrier barrier, String method, String[] args) throws Exception {
        switch (method) {
            case "set":
                barrier.setBarrier();
                return "ok";
            case "remove":
                barrier.removeBarrier();
                return "ok";
            case "wait":
                if (args.length > 0) {
                    return barrier.waitOnBarrier(Long.parseLong(args[0]), MS);
                }
                barrier.waitOnBarrier();
                return "ok";
            default:
                throw new IllegalArgumentException(method);
        }
    }
}
