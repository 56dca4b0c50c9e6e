package curator;

import java.util.Collection;
import java.util.concurrent.Semaphore;
import java.util.stream.Collectors;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.recipes.leader.LeaderSelector;
import org.apache.curator.framework.recipes.leader.LeaderSelectorListenerAdapter;
import org.apache.curator.framework.recipes.leader.Participant;

/**
 * A leader selector that stands for election again after each of its terms. A term lasts until it is told to end, or
 * until the connection is in doubt: then the adapter interrupts it, as Curator advises.
 */
final class Candidate extends LeaderSelectorListenerAdapter {
    private final LeaderSelector selector;
    private final Semaphore begun = new Semaphore(0);
    private final Semaphore ends = new Semaphore(0);

    Candidate(CuratorFramework client, String path) {
        selector = new LeaderSelector(client, path, this);
        selector.autoRequeue();
        selector.setId("curator");
    }

    @Override
    public void takeLeadership(CuratorFramework client) throws Exception {
        begun.release();
        ends.acquire();
    }

    Object run(String method) throws Exception {
        switch (method) {
            case "start":
                selector.start();
                return "ok";
            case "leads":
                // Waits for its next term.
                begun.acquire();
                return "ok";
            case "isLeader":
                return selector.hasLeadership();
            case "end":
                ends.release();
                return "ok";
            case "close":
                selector.close();
                return "ok";
            case "leader":
                return shown(selector.getLeader());
            case "participants":
                Collection<Participant> all = selector.getParticipants();
                return all.stream().map(Candidate::shown).sorted().collect(Collectors.joining(","));
            default:
                throw new IllegalArgumentException(method);
        }
    }

    /** The first word of its id, and whether it leads. */
    private static String shown(Participant participant) {
        String id = participant.getId().split("[ \0]", 2)[0];
        return (id.equals("curator") || id.isEmpty() ? id : "other") + (participant.isLeader() ? "*" : "");
    }
}
