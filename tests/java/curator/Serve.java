package curator;

import java.io.BufferedReader;
import java.io.File;
import java.io.IOException;
import java.io.InputStreamReader;
import java.lang.reflect.Field;
import org.apache.zookeeper.server.DataTree;
import org.apache.zookeeper.server.PrepRequestProcessor;
import org.apache.zookeeper.server.ZooKeeperServer;
import org.apache.zookeeper.server.quorum.QuorumPeerMain;

/**
 * A ZooKeeper server that ends when its standard input does, so that none outlives the tests that
 * started it. Argument: its zoo.cfg, with other servers or without. It removes the directory in the
 * property {@code curator.remove} when it ends.
 *
 * <p>A line {@code cversion <path> <number>} sets the counter of the children ever created in a
 * node: creating 2^31 of them would take weeks.
 */
public final class Serve {
    public static void main(String[] args) {
        Thread end = new Thread(Serve::obeyUntilEnd);
        end.setDaemon(true);
        end.start();
        QuorumPeerMain.main(args);
    }

    private static void obeyUntilEnd() {
        try {
            BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
            for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                String[] words = line.split(" ");
                setCversion(words[1], Integer.parseInt(words[2]));
            }
        } catch (IOException | ReflectiveOperationException | RuntimeException e) {
            // The end of the input, or equivalent to that.
            e.printStackTrace();
        }
        String directory = System.getProperty("curator.remove");
        if (directory != null) {
            remove(new File(directory));
        }
        Runtime.getRuntime().halt(1);
    }

    private static void remove(File file) {
        File[] inside = file.listFiles();
        for (int n = 0; inside != null && n < inside.length; n++) {
            remove(inside[n]);
        }
        file.delete();
    }

    private static void setCversion(String path, int number) throws ReflectiveOperationException {
        for (Thread thread : Thread.getAllStackTraces().keySet()) {
            if (thread instanceof PrepRequestProcessor) {
                Field field = PrepRequestProcessor.class.getDeclaredField("zks");
                field.setAccessible(true);
                DataTree tree = ((ZooKeeperServer) field.get(thread)).getZKDatabase().getDataTree();
                try {
                    tree.setCversionPzxid(path, number, tree.lastProcessedZxid);
                } catch (org.apache.zookeeper.KeeperException e) {
                    throw new IllegalStateException(e);
                }
            }
        }
    }
}
