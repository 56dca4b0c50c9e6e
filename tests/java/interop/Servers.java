package interop;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.redisson.config.BaseConfig;
import org.redisson.config.BaseMasterSlaveServersConfig;
import org.redisson.config.Config;
import org.redisson.config.ConstantDelay;
import org.redisson.config.ShardedSubscriptionMode;

/**
 * Redisson's configuration of the servers. Addresses are independent servers, each with a client of
 * its own; with sentinel=MASTER they are the sentinels that know the master of this name, and with
 * cluster=AUTO, ON or OFF (its sharded channels) nodes of one cluster: one client for all of them.
 *
 * <p>Further settings: watchdog and fairWait, in milliseconds, and retries.
 */
final class Servers {
    private Servers() {}

    static List<Config> configs(String[] addresses, Map<String, String> settings) {
        List<Config> configs = new ArrayList<>();
        if (settings.containsKey("sentinel") || settings.containsKey("cluster")) {
            configs.add(config(addresses, settings));
        } else {
            for (String address : addresses) {
                configs.add(config(new String[] {address}, settings));
            }
        }
        return configs;
    }

    private static Config config(String[] addresses, Map<String, String> settings) {
        Config config = new Config();
        config.setThreads(4).setNettyThreads(4);
        BaseConfig<?> servers = servers(config, addresses, settings);
        settings.forEach((name, value) -> {
            switch (name) {
                case "sentinel", "cluster" -> {}
                case "watchdog" -> config.setLockWatchdogTimeout(Long.parseLong(value));
                case "fairWait" -> config.setFairLockWaitTimeout(Long.parseLong(value));
                case "retries" -> servers.setRetryAttempts(Integer.parseInt(value));
                default -> throw new IllegalArgumentException(name);
            }
        });
        return config;
    }

    private static BaseConfig<?> servers(Config config, String[] addresses, Map<String, String> settings) {
        if (settings.containsKey("sentinel")) {
            return several(config.useSentinelServers().addSentinelAddress(addresses)
                    .setMasterName(settings.get("sentinel"))
                    // It refuses to start with a single sentinel.
                    .setCheckSentinelsList(addresses.length > 1)
                    .setScanInterval(500));
        }
        if (settings.containsKey("cluster")) {
            return several(config.useClusterServers().addNodeAddress(addresses)
                    .setShardedSubscriptionMode(ShardedSubscriptionMode.valueOf(settings.get("cluster")))
                    .setScanInterval(500));
        }
        return config.useSingleServer().setAddress(addresses[0])
                .setConnectionMinimumIdleSize(1).setConnectionPoolSize(16)
                .setSubscriptionConnectionMinimumIdleSize(1).setSubscriptionConnectionPoolSize(4)
                .setTimeout(2000);
    }

    /**
     * Servers that are replaced by others: a request to one that is gone is soon retried on the
     * next.
     */
    private static <T extends BaseMasterSlaveServersConfig<T>> BaseConfig<?> several(T servers) {
        return servers
                .setMasterConnectionMinimumIdleSize(1).setMasterConnectionPoolSize(16)
                .setSlaveConnectionMinimumIdleSize(1).setSlaveConnectionPoolSize(4)
                .setSubscriptionConnectionMinimumIdleSize(1)
                .setTimeout(1000).setRetryDelay(new ConstantDelay(Duration.ofMillis(200)))
                .setSubscriptionTimeout(2000);
    }
}
