package interop;

import driver.Driver;
import java.util.ArrayList;
import java.util.List;
import org.redisson.Redisson;
import org.redisson.api.RedissonClient;

/**
 * Redisson, controlled line by line ({@link Driver}). Arguments: the address, or several separated
 * by commas; then settings as NAME=VALUE ({@link Servers}). The end of its input ends it.
 */
public final class Main {
    public static void main(String[] args) throws Exception {
        Driver driver = new Driver();
        List<RedissonClient> clients = new ArrayList<>();
        Servers.configs(args[0].split(","), Driver.settings(args))
                .forEach(config -> clients.add(Redisson.create(config)));
        driver.run(new Objects(clients)::run);
        // Redisson ends its subscriptions only on shutdown.
        clients.forEach(RedissonClient::shutdown);
        System.exit(0);
    }
}
