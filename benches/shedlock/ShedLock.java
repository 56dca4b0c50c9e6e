import java.time.Clock;
import java.time.Duration;
import java.time.Instant;
import java.time.ZoneId;
import java.time.ZoneOffset;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicInteger;

import net.javacrumbs.shedlock.core.ClockProvider;
import net.javacrumbs.shedlock.core.DefaultLockingTaskExecutor;
import net.javacrumbs.shedlock.core.LockConfiguration;
import net.javacrumbs.shedlock.core.LockProvider;
import net.javacrumbs.shedlock.provider.jdbctemplate.JdbcTemplateLockProvider;
import net.javacrumbs.shedlock.provider.redis.spring.RedisLockProvider;
import org.springframework.data.redis.connection.lettuce.LettuceConnectionFactory;
import org.springframework.jdbc.core.JdbcTemplate;
import org.springframework.jdbc.datasource.DriverManagerDataSource;

/**
 * How often ShedLock runs a job that several machines start, each by its own clock. A thread is a machine. Arguments: the
 * port of a Redis, the JDBC URL of a PostgreSQL, and a user of it.
 */
public class ShedLock {
    /** How far the clock of this machine is ahead. */
    static final ThreadLocal<Duration> AHEAD = ThreadLocal.withInitial(() -> Duration.ZERO);

    static final Clock CLOCK = new Clock() {
        @Override
        public ZoneId getZone() {
            return ZoneOffset.UTC;
        }

        @Override
        public Clock withZone(ZoneId zone) {
            return this;
        }

        @Override
        public Instant instant() {
            return Instant.now().plus(AHEAD.get());
        }
    };

    static final Duration MINUTE = Duration.ofMinutes(1);

    final LockProvider provider;
    final AtomicInteger overlaps = new AtomicInteger();

    ShedLock(LockProvider provider) {
        this.provider = provider;
    }

    static LockConfiguration lock(String name, Duration most, Duration least) {
        return new LockConfiguration(ClockProvider.now(), name, most, least);
    }

    /** Each machine fires when its own clock says so. Returns how often the job ran. */
    int fire(String name, long[] ahead, Duration most, Duration least, long work) throws InterruptedException {
        AtomicInteger runs = new AtomicInteger();
        AtomicInteger inside = new AtomicInteger();
        overlaps.set(0);
        Instant at = Instant.now().plusMillis(1000);
        List<Thread> machines = new ArrayList<>();
        for (long ms : ahead) {
            Thread machine = new Thread(() -> {
                AHEAD.set(Duration.ofMillis(ms));
                Runnable job = () -> {
                    if (inside.incrementAndGet() > 1) {
                        overlaps.incrementAndGet();
                    }
                    runs.incrementAndGet();
                    sleep(work);
                    inside.decrementAndGet();
                };
                sleep(Math.max(0, Duration.between(CLOCK.instant(), at).toMillis()));
                new DefaultLockingTaskExecutor(provider).executeWithLock(job, lock(name, most, least));
            });
            machine.start();
            machines.add(machine);
        }
        for (Thread machine : machines) {
            machine.join();
        }
        return runs.get();
    }

    static void sleep(long ms) {
        try {
            Thread.sleep(ms);
        } catch (InterruptedException e) {
            throw new IllegalStateException(e);
        }
    }

    void play(String names) throws Throwable {
        long[] apart = {0, 33, 67, 100, 133, 167, 200, 233, 267, 300};
        long[] late = {0, 0, 0, 0, 0, 0, 0, 0, 0, -3000};
        Duration second = Duration.ofSeconds(1);
        fire(names + "-first", new long[10], MINUTE, Duration.ZERO, 2);
        say("ten machines, clocks 300 ms apart, 2 ms of work", fire(names + "-a", apart, MINUTE, Duration.ZERO, 2));
        say("the same, lockAtLeastFor 1 s", fire(names + "-b", apart, MINUTE, second, 2));
        say("a machine 3 s late, lockAtLeastFor 1 s", fire(names + "-c", late, MINUTE, second, 2));
        int runs = fire(names + "-d", new long[] {0, -1500}, second, Duration.ZERO, 2000);
        say("2 s of work, lockAtMostFor 1 s, a machine 1.5 s late (overlaps: " + overlaps + ")", runs);
        provider.lock(lock(names + "-e", MINUTE, Duration.ZERO)).orElseThrow();
        say("its holder has died, two machines 1 s later, lockAtMostFor 1 min",
            fire(names + "-e", new long[2], MINUTE, Duration.ZERO, 2));
        Duration five = Duration.ofSeconds(5);
        try {
            Runnable fails = () -> {
                throw new IllegalStateException("the job has failed");
            };
            new DefaultLockingTaskExecutor(provider).executeWithLock(fails, lock(names + "-f", MINUTE, five));
        } catch (IllegalStateException expected) {
            say("the job has failed, two machines 1 s later, lockAtLeastFor 5 s",
                fire(names + "-f", new long[2], MINUTE, five, 2));
        }
    }

    static void say(String what, int runs) {
        System.out.printf("  %s: %d%n", what, runs);
    }

    public static void main(String[] args) throws Throwable {
        ClockProvider.setClock(CLOCK);
        LettuceConnectionFactory redis = new LettuceConnectionFactory("127.0.0.1", Integer.parseInt(args[0]));
        redis.afterPropertiesSet();
        redis.start();
        JdbcTemplate jdbc = new JdbcTemplate(new DriverManagerDataSource(args[1], args[2], ""));
        jdbc.execute("DROP TABLE IF EXISTS shedlock");
        jdbc.execute("CREATE TABLE shedlock(name VARCHAR(64) PRIMARY KEY, lock_until TIMESTAMP NOT NULL,"
            + " locked_at TIMESTAMP NOT NULL, locked_by VARCHAR(255) NOT NULL)");
        var settings = JdbcTemplateLockProvider.Configuration.builder().withJdbcTemplate(jdbc);
        Map<String, LockProvider> providers = new LinkedHashMap<>();
        providers.put("redis", new RedisLockProvider(redis));
        providers.put("jdbc", new JdbcTemplateLockProvider(settings.build()));
        providers.put("jdbc-usingDbTime", new JdbcTemplateLockProvider(settings.usingDbTime().build()));
        String run = Long.toString(System.nanoTime());
        for (var one : providers.entrySet()) {
            System.out.println(one.getKey());
            new ShedLock(one.getValue()).play(one.getKey() + run);
        }
        System.exit(0);
    }
}
