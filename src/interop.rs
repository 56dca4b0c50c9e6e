//! Sharing locks with Redisson: what both sides can rely on, and where Redisson's behaviour shows on ours.
//!
//! There is no code in this module, only this page. "Java" is a process with Redisson; both sides use one Redis, by one key
//! name (see [`key_prefix`](crate::Builder::key_prefix) for Redisson's `NameMapper`).
//!
//! What is said here was read from Redisson's scripts and seen on live ones: **4.7.0** (the newest) and **3.52.0** (the newest
//! before 4), in `tests/interop`, whenever all tests are run where a JDK and Maven are. Two processes of each side count to the
//! same number under every primitive, one of each under Redlock. Under all locks and permits at once connections are cut,
//! scripts forgotten, the server is started again, and two processes of each side are killed in the middle of their turns.
//!
//! # Which is which
//!
//! | here | in Java | shared |
//! |---|---|---|
//! | [`mutex`](crate::LockClient::mutex), [`multi`](crate::LockClient::multi) | `RLock`, `RMultiLock` | hash, TTL, channel; a multi-lock is as many plain locks |
//! | [`mutex`](crate::LockClient::mutex) with [`keep_token`](crate::ReentrantMutex::keep_token) | `RFencedLock` | the token counter as well |
//! | [`fair`](crate::LockClient::fair) | `RFairLock` | queue and deadlines; served in the order in which they came, whichever side they are on |
//! | [`rw_lock`](crate::LockClient::rw_lock) | `RReadWriteLock` | hash, level keys, channel |
//! | [`latch`](crate::LockClient::latch) | `RCountDownLatch` | count and channel |
//! | [`semaphore`](crate::LockClient::semaphore) | `RPermitExpirableSemaphore` | permits with their leases, channel |
//! | [`counting_semaphore`](crate::LockClient::counting_semaphore) | `RSemaphore` | count and channel |
//! | [`Builder::redlock`](crate::Builder::redlock) | `RedissonRedLock` (deprecated), within [limits](#beside-redissonredlock) | hash, TTL, channel, on each master |
//!
//! They exclude each other and wake each other. Each renews its own holds: Redisson's `lockWatchdogTimeout` and our
//! [`lease`](crate::Builder::lease) need not be the same. Only [readers that share a lock](#readers-of-both-sides) see the
//! shorter of the two.
//!
//! # What is ours alone
//!
//! A holder of ours is `<id of the client>:<number>`, the id a UUID of version 8 (Java's are version 4). Three look at
//! that: fair locks, to give each waiter the patience of its side (the last six digits of ours are its client's
//! [`waiter_timeout`](crate::Builder::waiter_timeout) in ms), read holds, to see who may cut their lock, and Redlock, to which
//! all of Java is one holder. Keys beside
//! Redisson's: `leasehold_writer:{N}` (a waiting writer), `leasehold_once:{N}:..` (marks of counts, and when a latch was opened), `leasehold:node` (Redlock).
//! Java neither sees nor needs them.
//!
//! # Names
//!
//! Java accepts every name. Ours refuses these with [`InvalidInput`](crate::ErrorKind::InvalidInput), before anything is sent: an
//! empty one; one longer than 1 024 bytes, the prefix included; one with braces that are not a pair with something in it (`a{b`,
//! `a}b`, `a{}b`: its keys would lie in different slots of a cluster, where Java takes `a{b` and cannot give it back); and keys
//! that are not locks (`leasehold:node`, and what begins with `leasehold_writer:`, `leasehold_once:` or `redisson_lock_token:`).
//!
//! # What Redisson does that shows here
//!
//! | Redisson | what it means | what we do |
//! |---|---|---|
//! | never tells a holder that its lease is gone | a Java holder that paused goes on working beside ours | a fencing token at the resource stops it, if it sends one: `RFencedLock` has them |
//! | `RFencedLock.delete()` removes the token counter with the lock, and tells nobody | Java's tokens begin again at 1, and the resource refuses them; waiters of both sides sleep until the TTL they saw is over | our next token is the server's clock again, above all before, and Java's go on from there; a holder of ours is told at its next renewal |
//! | a Java waiter in a fair queue that dies stands there for five minutes | it holds up everybody behind it so long, ours too | Java's keep Java's time; our own dead waiters stand for [`waiter_timeout`](crate::Builder::waiter_timeout). A shorter `fairLockWaitTimeout` helps where nobody holds the lock for as long as that, for Java's waiters lose their places then; tell it here as [`java_waiter_timeout`](crate::Builder::java_waiter_timeout) |
//! | a Java waiter in a fair queue whose time is over while it lives loses its place, and nobody tells it | it sleeps until a hint of its own, or for ever | whoever of ours passes it over wakes it, and it lines up anew; if the lock is free, the next is woken as well |
//! | in a fair queue each counts from the deadline in front of it, and takes its own wait back when it leaves | ours in between must keep to that, or the deadlines run ahead of the clock, and a dead waiter stands for as long | when ours gets its turn, those behind it are put back to the lock's lease |
//! | in a fair queue one of ours that stands behind Java has Java's time on top, which may be more than Java takes back when it leaves | if ours is dead by then, it would hold up everybody for that time (34 s behind a `lock()`, 280 s behind a `tryLock` of 20 s) | whoever of ours asks for the lock next, a waiter or a `try_lock`, puts it back to its own `waiter_timeout`; where only Java waits, [it stands](crate::FairMutex#order) |
//! | a fair lock's release tells the head of the queue only, a plain lock's none of the queue | where both are used under one name, on either side, those of the other kind wait until the TTL they saw is over | nothing: use one kind for a name (our own fair waiters look at every third of their `waiter_timeout`) |
//! | with a dead head and a free lock, Java's fair waiters ask in a loop | load, until the head's time is over | ours wait for the time that is left |
//! | Java's readers look at no mark of a waiting writer | many of them can keep a writer of ours waiting, and our readers with it: they stay out while Java's go in | ours let a waiting writer of ours go first |
//! | renewing one Java reader sets the TTL of the whole lock to its own, whatever others were promised | a longer lease of ours is cut to Java's watchdog time | we look at our read holds once a second, lift the lock again, and [believe no longer](#readers-of-both-sides) than Java may leave us |
//! | a write lock that becomes a read lock tells nobody | readers wait until the TTL that they saw is over, Java's and ours | nothing about Java's; our [`downgrade`](crate::RwLockWriteGuard::downgrade) wakes the readers of both sides |
//! | the release of a Java writer says `1`, which wakes only who sleeps by then | a Java waiter that has just tried in vain sleeps until the TTL it saw is over (3 in 600 did, when the release came within 2.5 ms of the subscription) | a release of ours says `00` behind it, to Java another `0`, which is kept for such a waiter (none in 1 200) |
//! | deleting a latch strands those who wait | in Java, until their own time is over | [`delete`](crate::CountDownLatch::delete) of ours wakes those of both sides |
//! | a message `0` on a latch that still counts makes Java ask in a loop | load | it is sent only by the script that took the count to zero |
//! | whoever waits for a latch looks at nothing but the count | where it is set anew right behind its last count, waiters of both sides find it counting and wait on (37 of 40; none when 2 ms lay between) | nothing: take a new name for each round |
//! | permits are swept by the wall clock of whoever asks | clocks that differ could end a lease early | ours stand two seconds longer in Redis than we believe |
//! | a request may be sent twice after a lost reply, outside of single-server mode | a Java count can be one too high | none of ours counts twice; a Java holder's count is its own |
//! | a user without rights on channels can lock and not wake | waiters sleep until their hint | the rights are asked for at connect, and a missing one is an error |
//! | `RMultiLock` and `RedissonRedLock` set their lease at the end on whatever holder is there by then | taken slower than twice its wait (a master is dead), Java cuts a lock of *ours* to its lease, and works beside us | nothing: name no lease there |
//! | `RMultiLock` waits for one lock while it holds others, and what a lost reply left locked in its name stays | two Java threads can wait for each other (seen for 16 s with leases of 10 s), and ours for both | ours takes all or none, and holds nothing while it waits |
//! | `MultiLock.lock(lease, unit)` multiplies its lease with every round that fails | its locks can stand for days | nothing: name no lease there, or free it [by force](crate::ReentrantMutex::force_unlock) |
//!
//! # Readers of both sides
//!
//! A renewal by a Java reader sets the TTL of the whole lock to that client's `lockWatchdogTimeout`, and before Redisson 4.4
//! that of every reader's lease as well. If such a reader is killed, the lock ends that soon, whatever lease its other readers
//! have. So a read hold of ours is looked at 0.1 s after it was taken and then once a second (more often if its lease is
//! shorter than 3 s), all that a client has in one request. A look puts back what was cut, and finds out whether a Java reader
//! has a part in the lock. While one has, our hold is valid for no longer than what was left of Java's lease at the last look,
//! and at least 2 s: [`remaining`](crate::RwLockReadGuard::remaining) says so, and a server that cannot be asked for that long
//! costs us the hold in time, before a writer gets in. Once no Java reader is left, our own lease counts again. Readers of this
//! crate alone never shorten each other.
//!
//! What remains: a reader of ours may believe in a lock that a writer has where
//! - a Java client has a `lockWatchdogTimeout` below 2 s (its default is 30 s);
//! - the server could not be asked from before our first look (0.1 s) or from before the first after a Java reader came (1 s),
//!   and that reader renews and dies meanwhile;
//! - the same, and more than a hundred readers share the lock, or the Java reader was itself paused for longer than its
//!   watchdog time: of such a one only those looks learn that come between its renewal and the next of ours that mends it.
//!
//! Where that matters, give Java a watchdog time that is no shorter than our lease, and fence what a reader does to others.
//!
//! # What was measured
//!
//! From a release on one side until a waiter of the other has it: 2 to 6 ms for every primitive and either way, 23 ms at most
//! in 5 of each (two cores, the JVM just started); a message each time, never the end of a TTL.
//!
//! Eight threads of ours against eight of Java on one name, in two processes each, in a tight loop for 15 s: plain locks are
//! not fair, and ours won 85 to 90 of 100 turns, because they need less time for one and hand over within their process; a
//! thread of Java waited 4 s at most (0.4 s where only Java takes turns). A [fair lock](crate::FairMutex) gave each side half,
//! and nobody waited longer than 0.1 s. Of an `RMultiLock` Java had the most turns (84 to 89 of 100): it sits on the locks
//! that it has while ours take all or none. Of permits ours had 61 to 68 of 100.
//!
//! # Beside `RedissonRedLock`
//!
//! One `RLock` on each of the same masters, under the same name. As long as no master forgets what it was told, and Java names
//! no lease, both sides exclude each other, with one of three masters dead too; each renews its own; a release of either wakes
//! the other. [`holder`](crate::ReentrantMutex::holder) shows a Java hold by its id on one of the masters: it has another on
//! each, and what they have in common is the number of the thread.
//!
//! | it does | what it means | what we do |
//! |---|---|---|
//! | counts a master that restarted empty at once | if it takes another's vote, Java works beside ours, or beside Java | our own wait for the [longest lease](crate::Builder::longest_lease), which should be Java's longest as well; only masters that sync every write keep Java out |
//! | looks at no time: not how long it took, not whether most masters still have it | a Java holder that lost its majority goes on beside ours, and has no fencing token | nothing |
//! | asks the masters in turn, a dead one as well, until its client gives up (5 s by default) | each call takes so long; a `lock()` hardly ever ends while the first or second of three is dead, for its rounds last 4.5 s | nothing: `setRetryAttempts(0)` cures it in Java |
//! | waits for a third master when it has two | for a third of its wait (`lock()`: 1.5 s) nobody has the lock, if it misses the end of a vote of ours there | a vote taken back by a client that has seen a Java holder says `00`, a release to Java and nothing to ours |
