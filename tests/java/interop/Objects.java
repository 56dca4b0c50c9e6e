package interop;

import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import org.redisson.RedissonRedLock;
import org.redisson.api.RCountDownLatch;
import org.redisson.api.RFencedLock;
import org.redisson.api.RLock;
import org.redisson.api.RPermitExpirableSemaphore;
import org.redisson.api.RRateLimiter;
import org.redisson.api.RSemaphore;
import org.redisson.api.RateLimiterConfig;
import org.redisson.api.RateType;
import org.redisson.api.RedissonClient;

/**
 * Redisson's objects and the operations of the tests. Objects are kept, as in applications, because
 * they have state.
 */
final class Objects {
    private static final TimeUnit MS = TimeUnit.MILLISECONDS;

    /** One for each server; all primitives but "redlock" use the first. */
    private final List<RedissonClient> clients;
    private final RedissonClient client;
    private final Map<String, Object> kept = new ConcurrentHashMap<>();

    Objects(List<RedissonClient> clients) {
        this.clients = clients;
        this.client = clients.get(0);
    }

    Object run(String primitive, String name, String method, String[] args) throws Exception {
        if (method.equals("rounds")) {
            return Turns.rounds(client, name, args);
        }
        long[] n = method.equals("release") || method.equals("turns") ? new long[0] : numbers(args);
        Object object = kept.computeIfAbsent(primitive + " " + name, key -> object(primitive, name));
        if (method.equals("turns")) {
            return Turns.take(object, args);
        }
        if (object instanceof RFencedLock fenced && method.endsWith("oken")) {
            return token(fenced, method, n);
        }
        if (object instanceof RLock lock) {
            return lock(lock, method, n);
        }
        if (object instanceof RCountDownLatch latch) {
            return latch(latch, method, n);
        }
        if (object instanceof RSemaphore semaphore) {
            return counting(semaphore, method, args.length == 0 ? n : numbers(args));
        }
        if (object instanceof RRateLimiter limiter) {
            return rate(limiter, method, args.length == 0 ? n : numbers(args));
        }
        return permits((RPermitExpirableSemaphore) object, method, n, args);
    }

    /** For a primitive over several locks, the name is a list of names. */
    private Object object(String primitive, String name) {
        RLock[] members = Arrays.stream(name.split(",")).map(client::getLock).toArray(RLock[]::new);
        return switch (primitive) {
            case "lock" -> client.getLock(name);
            case "fair" -> client.getFairLock(name);
            case "read" -> client.getReadWriteLock(name).readLock();
            case "write" -> client.getReadWriteLock(name).writeLock();
            case "fenced" -> client.getFencedLock(name);
            case "multi" -> client.getMultiLock(members);
            case "redlock" -> redlock(name);
            case "latch" -> client.getCountDownLatch(name);
            case "permits" -> client.getPermitExpirableSemaphore(name);
            case "counting" -> client.getSemaphore(name);
            case "rate" -> client.getRateLimiter(name);
            default -> throw new IllegalArgumentException(primitive);
        };
    }

    @SuppressWarnings("deprecation")
    private RLock redlock(String name) {
        return new RedissonRedLock(clients.stream().map(client -> client.getLock(name)).toArray(RLock[]::new));
    }

    private static Object lock(RLock lock, String method, long[] n) throws Exception {
        switch (method) {
            case "lock":
                if (n.length == 0) {
                    lock.lock();
                } else {
                    lock.lock(n[0], MS);
                }
                return "ok";
            case "tryLock":
                return switch (n.length) {
                    case 0 -> lock.tryLock();
                    case 1 -> lock.tryLock(n[0], MS);
                    default -> lock.tryLock(n[0], n[1], MS);
                };
            case "unlock":
                lock.unlock();
                return "ok";
            case "forceUnlock":
                return lock.forceUnlock();
            case "holdCount":
                return lock.getHoldCount();
            case "isLocked":
                return lock.isLocked();
            case "isHeld":
                return lock.isHeldByCurrentThread();
            case "ttl":
                return lock.remainTimeToLive();
            default:
                throw new IllegalArgumentException(method);
        }
    }

    private static Object token(RFencedLock lock, String method, long[] n) {
        return switch (method) {
            case "lockAndGetToken" -> lock.lockAndGetToken();
            case "tryLockAndGetToken" -> lock.tryLockAndGetToken(n[0], MS);
            case "getToken" -> lock.getToken();
            default -> throw new IllegalArgumentException(method);
        };
    }

    private static Object latch(RCountDownLatch latch, String method, long[] n) throws Exception {
        switch (method) {
            case "trySetCount":
                return latch.trySetCount(n[0]);
            case "countDown":
                latch.countDown();
                return "ok";
            case "getCount":
                return latch.getCount();
            case "await":
                if (n.length > 0) {
                    return latch.await(n[0], MS);
                }
                latch.await();
                return "ok";
            case "delete":
                return latch.delete();
            default:
                throw new IllegalArgumentException(method);
        }
    }

    private static Object counting(RSemaphore semaphore, String method, long[] n) throws Exception {
        switch (method) {
            case "trySetPermits":
                return semaphore.trySetPermits((int) n[0]);
            case "acquire":
                semaphore.acquire((int) n[0]);
                return "ok";
            case "tryAcquire":
                return n.length > 1 ? semaphore.tryAcquire((int) n[0], n[1], MS) : semaphore.tryAcquire((int) n[0]);
            case "release":
                semaphore.release((int) n[0]);
                return "ok";
            case "addPermits":
                semaphore.addPermits((int) n[0]);
                return "ok";
            case "drainPermits":
                return semaphore.drainPermits();
            case "availablePermits":
                return semaphore.availablePermits();
            case "delete":
                return semaphore.delete();
            default:
                throw new IllegalArgumentException(method);
        }
    }

    private static Object rate(RRateLimiter limiter, String method, long[] n) {
        switch (method) {
            case "trySetRate":
                return limiter.trySetRate(RateType.OVERALL, n[0], Duration.ofMillis(n[1]));
            case "trySetRateOfEach":
                return limiter.trySetRate(RateType.PER_CLIENT, n[0], Duration.ofMillis(n[1]));
            case "trySetRateFor":
                return limiter.trySetRate(RateType.OVERALL, n[0], Duration.ofMillis(n[1]), Duration.ofMillis(n[2]));
            case "setRate":
                limiter.setRate(RateType.OVERALL, n[0], Duration.ofMillis(n[1]));
                return "ok";
            case "acquire":
                limiter.acquire(n[0]);
                return "ok";
            case "tryAcquire":
                return n.length > 1 ? limiter.tryAcquire(n[0], Duration.ofMillis(n[1])) : limiter.tryAcquire(n[0]);
            case "release":
                limiter.release(n[0]);
                return "ok";
            case "availablePermits":
                return limiter.availablePermits();
            case "config":
                RateLimiterConfig config = limiter.getConfig();
                return config.getRateType() + " " + config.getRate() + " " + config.getRateInterval();
            case "delete":
                return limiter.delete();
            default:
                throw new IllegalArgumentException(method);
        }
    }

    private static Object permits(RPermitExpirableSemaphore semaphore, String method, long[] n, String[] args)
            throws Exception {
        switch (method) {
            case "trySetPermits":
                return semaphore.trySetPermits((int) n[0]);
            case "acquire":
                return n.length > 0 ? semaphore.acquire(n[0], MS) : semaphore.acquire();
            case "acquireMany":
                List<String> ids = semaphore.acquire((int) n[0]);
                return String.join(" ", ids);
            case "tryAcquire":
                return n.length > 1 ? semaphore.tryAcquire(n[0], n[1], MS) : semaphore.tryAcquire();
            case "release":
                if (args.length == 1) {
                    return semaphore.tryRelease(args[0]);
                }
                semaphore.release(Arrays.asList(args));
                return "true";
            case "addPermits":
                semaphore.addPermits((int) n[0]);
                return "ok";
            case "availablePermits":
                return semaphore.availablePermits();
            case "acquiredPermits":
                return semaphore.acquiredPermits();
            case "delete":
                return semaphore.delete();
            default:
                throw new IllegalArgumentException(method);
        }
    }

    private static long[] numbers(String[] args) {
        return Arrays.stream(args).mapToLong(Long::parseLong).toArray();
    }
}
