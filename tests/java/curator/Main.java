package curator;

import driver.Driver;

/**
 * Curator, controlled line by line ({@link Driver}). Arguments: the addresses separated by commas,
 * with a chroot or without; then settings as NAME=VALUE ({@link Link}). The end of its input ends
 * it, and its session.
 */
public final class Main {
    public static void main(String[] args) throws Exception {
        Driver driver = new Driver();
        Link link = new Link(args[0], Driver.settings(args));
        driver.run(new Objects(link)::run);
        link.client.close();
        System.exit(0);
    }
}
