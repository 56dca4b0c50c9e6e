package curator;

import java.io.IOException;
import org.apache.zookeeper.server.quorum.QuorumPeerMain;

/**
 * A ZooKeeper server that ends when its standard input does, so that none outlives the tests that started it. Argument: its
 * zoo.cfg, with other servers or without.
 */
public final class Serve {
    public static void main(String[] args) {
        Thread end = new Thread(Serve::awaitEnd);
        end.setDaemon(true);
        end.start();
        QuorumPeerMain.main(args);
    }

    private static void awaitEnd() {
        try {
            while (System.in.read() >= 0) {}
        } catch (IOException e) {
            // As good as its end.
        }
        Runtime.getRuntime().halt(1);
    }
}
