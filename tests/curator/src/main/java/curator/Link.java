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
 * A client with a session, and when the state of its connection changed. Settings: session and connection, in
 * milliseconds, and retries: how often a request is tried again, 100 ms apart; for ever without it.
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
                // It would replace proxies by what the servers say of themselves.
                .ensembleTracker(false)
                .build();
        client.getConnectionStateListenable().addListener(listener);
        client.start();
        client.blockUntilConnected();
        return client;
    }

    /** Whether it still is what its users take for connected: anything but lost, or nothing but connected. */
    boolean isBelieved(boolean cautious) {
        synchronized (changes) {
            ConnectionState last = changes.isEmpty() ? ConnectionState.CONNECTED : changes.get(changes.size() - 1).state;
            return cautious ? last.isConnected() : last != ConnectionState.LOST;
        }
    }

    /** NANOS:STATE with spaces between, first of all CONNECTED. */
    String changes() {
        synchronized (changes) {
            return changes.stream().map(change -> change.nanos + ":" + change.state).collect(Collectors.joining(" "));
        }
    }
}
