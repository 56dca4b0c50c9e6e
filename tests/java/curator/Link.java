package curator;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.state.ConnectionState;
import org.apache.curator.framework.state.ConnectionStateListener;
import org.apache.curator.retry.RetryForever;
import org.apache.curator.retry.RetryNTimes;

/**
 * A client with a session, and the changes of its connection's state. Settings: session and
 * connection, in milliseconds, and retries: how often a request is retried, 100 ms apart; forever
 * by default.
 *
 * <p>Its clock is System.nanoTime(): that of the whole machine (CLOCK_MONOTONIC), on Linux.
 */
final class Link {
    private record Change(long nanos, ConnectionState state) {}

    final CuratorFramework client;
    private final String addresses;
    private final Map<String, String> settings;
    private final List<Change> changes = new ArrayList<>();

    Link(String addresses, Map<String, String> settings) throws InterruptedException {
        this.addresses = addresses;
        this.settings = settings;
        this.client = connect((client, state) -> {
            synchronized (changes) {
                changes.add(new Change(System.nanoTime(), state));
            }
        });
    }

    /** Another client with a session of its own. */
    CuratorFramework connect() throws InterruptedException {
        return connect((client, state) -> {});
    }

    private CuratorFramework connect(ConnectionStateListener listener) throws InterruptedException {
        int retries = Integer.parseInt(settings.getOrDefault("retries", "0"));
        CuratorFramework client = CuratorFrameworkFactory.builder()
                .connectString(addresses)
                .sessionTimeoutMs(Integer.parseInt(settings.getOrDefault("session", "10000")))
                .connectionTimeoutMs(Integer.parseInt(settings.getOrDefault("connection", "3000")))
                .retryPolicy(retries > 0 ? new RetryNTimes(retries, 100) : new RetryForever(100))
                // It would replace proxies by the addresses that the servers report.
                .ensembleTracker(false)
                .build();
        client.getConnectionStateListenable().addListener(listener);
        client.start();
        client.blockUntilConnected();
        return client;
    }

    /** Whether its users still consider it connected: any state but lost, or only connected. */
    boolean isBelieved(boolean cautious) {
        synchronized (changes) {
            ConnectionState last = changes.isEmpty() ? ConnectionState.CONNECTED : changes.get(changes.size() - 1).state;
            return cautious ? last.isConnected() : last != ConnectionState.LOST;
        }
    }

    /** NANOS:STATE separated by spaces, the first of which is CONNECTED. */
    String changes() {
        synchronized (changes) {
            return changes.stream().map(change -> change.nanos + ":" + change.state).collect(Collectors.joining(" "));
        }
    }
}
