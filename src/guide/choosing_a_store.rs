//! One Redis, Redis with replicas, Redlock, PostgreSQL, MySQL or ZooKeeper: what each costs, what
//! it promises, and what happens when something fails.
//!
//! Guards, calls, waiting and errors are the same with all of them. The URL differs, and so does
//! what this page describes.
//!
//! # The recommendation
//!
//! 1. **What the lock protects is in PostgreSQL**: keep the lock [there
//!    too](crate::guide::postgres), and fence the transaction. Then a late holder cannot commit,
//!    which only a database can guarantee. In [MySQL or MariaDB](crate::guide::mysql) as well, if
//!    you need no fair lock, latch, job or election, and take locks some times a second: each lock
//!    and its unlock are two commits, about twice the time of `SELECT … FOR UPDATE` and one write.
//! 2. **A job that runs twice costs time or money, and you have a Redis**: one Redis is enough. If
//!    it should fail over, put it behind [sentinels][crate::Builder::sentinel] and set
//!    [`replicas(1)`][crate::Redis::replicas].
//! 3. **No lock may be forgotten when a server dies**, or Java services with Curator share the
//!    locks: [ZooKeeper](crate::guide::zookeeper). PostgreSQL does not forget any either if the
//!    standby that is promoted was synchronous.
//! 4. **[Redlock](crate::guide::redlock)** if you have three independent Redis servers and neither
//!    of those two, and need no more than [`lock`](crate::LockClient::lock).
//!
//! With any of them the resource has to check the [fencing token](crate::guide::fencing) where a
//! job that runs twice would corrupt data: every lock with a lease can end while its holder works.
//!
//! # What each costs
//!
//! | | one Redis | with `replicas(1)` | Redlock | PostgreSQL | MySQL | ZooKeeper |
//! |---|---|---|---|---|---|---|
//! | servers | one | two, and sentinels | three | one | one | three |
//! | round trips of a lock and its unlock, when it is free | two | two; the first also waits for the replica | two, to all servers in parallel | two | two | two |
//! | what is written for them | two scripts, in memory | the same | the same on each | two transactions | two transactions | two changes on a majority |
//! | connections of a client | 10 at most | the same | 10 at most to each | 6 at most | 6 at most | one |
//! | while it holds | renewals, many holds in one request | the same, and the replica has to acknowledge them | renewals, to each | renewals, many holds in one request | renewals, many holds in one request | heartbeats, which are writes; as many for hundreds of holds as for one |
//! | while it waits | a message wakes it; one request in each lease | the same | a message wakes it; a few requests to each | a message wakes it; it reads now and then, and writes nothing | it looks at the row, at most four times a second once the wait is long | the server wakes it; pings |
//!
//! Threads of one client share all of this: over Redis, fifty waiting threads cost as much as one.
//! `BENCHMARKS.md` compares each store with bare requests to it.
//!
//! # What each promises
//!
//! | | one Redis | with `replicas(1)` | Redlock | PostgreSQL | MySQL | ZooKeeper |
//! |---|---|---|---|---|---|---|
//! | primitives | all | all | the plain lock | all but the rate limiter | the plain and the read-write lock, semaphores, several locks as one | all but the counting semaphore and the rate limiter |
//! | who is next | no client starves; a fair lock keeps the order | the same | no client starves | like one Redis | no client starves | clients in the order of arrival, for plain, fair and read-write locks |
//! | stays taken after its guard ([`min_hold`](crate::ReentrantMutex::min_hold)) | yes | yes | yes | yes | yes | no: it ends with its session |
//! | [data](crate::ReentrantMutex::with_data) beside a hold | yes | yes | no | yes | no | yes, but nothing of a holder that is gone |
//! | [elections](crate::LockClient::election) | yes | yes | no | yes | no | yes |
//! | fencing tokens grow over | restarts, even without data | a failover | masters that forget, one after the other | a failover | restarts | an election |
//! | what can check them | Redis, SQL, the program | the same | SQL, the program | the transaction itself, SQL, the program | the transaction itself, SQL, the program | SQL, the program |
//! | shared with Java | Redisson | Redisson | no | no | no | Curator |
//!
//! # What happens when
//!
//! With every store:
//!
//! - **The holder dies**: others get in when its lease has ended (with ZooKeeper, its session).
//! - **The holder is suspended** past its lease: its first check reports that the lock is lost, and
//!   its later calls do not harm the present holder.
//! - **The client is cut off**: its holds are lost by time, without a reply from the server.
//! - **A reply is lost**: the request leaves nothing behind, and a waiting call continues.
//!
//! And with each:
//!
//! | | one Redis | with `replicas(1)` | Redlock | PostgreSQL | MySQL | ZooKeeper |
//! |---|---|---|---|---|---|---|
//! | a server restarts with its data | locks are kept | locks are kept | kept; it votes at once with [`durable_nodes`][crate::Redlock::durable_nodes] | locks are kept, even after a crash | locks are kept, even after a crash | locks are kept |
//! | a server comes back empty | its locks are **forgotten**, and a holder learns of it at its next renewal | | no second holder: it has no vote until the longest lease is over | | | holds are lost, and tokens start over |
//! | the server is gone for good, another takes over | **the newest grants may be forgotten**; those that the other server has are renewed there | none forgotten, if that replica takes over: it has each grant that was confirmed | nobody notices | **the newest grants may be forgotten**; none with a synchronous standby | **the newest grants may be forgotten**; those that the replica has are renewed there | holds and places in the queue are kept |
//! | one of several is away | | without its replica nothing is granted: `NotReplicated` | nobody notices | without its synchronous standby nothing is granted: `Unreachable`, or `NotReplicated` if its wait is cancelled | | holds are kept; clients go to another server |
//! | the majority, or the only one, is away | holds are lost by time | the same | holds are lost by time, calls fail with `NoQuorum` | holds are lost by time, calls fail with `Unreachable` | like PostgreSQL | the same; nobody gets in until the majority is back |
//! | the old server goes on, cut off together with the holder | **it goes on granting** until the sentinels name another | it grants nothing | the holder loses it in time | | | the holder's guard says so **before** another has the lock |
//!
//! An empty cell is a case that does not exist there, or that no test covers. An old PostgreSQL
//! primary that is cut off and goes on has to be stopped by the tool that promotes the standby.
//!
//! # Where each sentence is tested
//!
//! Every row and sentence above has a test in the repository, or a measurement. Tests have the
//! names that `cargo test` prints, with the test binary in front.
//!
//! - **late holders cannot commit**: `it::on_postgres::fence::a_late_holder_cannot_commit`,
//!   `it::on_postgres::fence::only_a_database_has_transactions`,
//!   `it::on_mysql::fence::a_fence_keeps_others_out_until_its_transaction_ends`,
//!   `it::on_mysql::fence::money_is_moved_once`
//! - **servers**: `it::replicas::a_failover_to_the_replica_keeps_the_hold`,
//!   `it::redlock::masters_down::a_minority_may_be_dead_from_the_start_and_a_majority_not`,
//!   `it::on_zookeeper::connecting::another_server_is_found_within_the_session`
//! - **round trips of a lock and its unlock, when it is free**:
//!   `it::costs::redis_is_asked_once_for_a_lock_and_once_for_its_unlock`,
//!   `it::replicas::each_grant_waits_once_for_the_replica`,
//!   `it::costs::each_master_of_redlock_is_asked_as_often_as_one_redis`,
//!   `it::costs::postgres_is_asked_once_for_a_lock_and_once_for_its_unlock`,
//!   `it::costs::mysql_is_asked_once_for_a_lock_and_once_for_its_unlock`,
//!   `it::costs::a_zookeeper_makes_two_changes_in_two_round_trips`
//! - **what is written for them**: the same, with
//!   `it::costs::a_zookeeper_makes_two_changes_in_two_round_trips`,
//!   `it::on_postgres::replication::a_synchronous_standby_forgets_nothing`
//! - **connections of a client**: `it::costs::a_redis_has_ten_connections_of_a_client_at_most`,
//!   `it::on_postgres::load::many_threads_share_few_connections`,
//!   `it::on_mysql::load::many_threads_share_few_connections`,
//!   `it::costs::a_zookeeper_makes_two_changes_in_two_round_trips`
//! - **while it holds**: `it::costs::the_renewals_of_a_hundred_holds_travel_together`,
//!   `it::contract::leases::renewal_keeps_it_for_many_leases`,
//!   `it::replicas::a_renewal_that_too_few_replicas_have_does_not_count`,
//!   `it::on_postgres::load::ten_thousand_holds_are_renewed`,
//!   `it::on_mysql::load::the_renewals_of_many_holds_travel_together`,
//!   `it::on_zookeeper::connecting::many_holds_cost_no_more_heartbeats_than_one`,
//!   `BENCHMARKS.md: The plain lock, against raw`, `BENCHMARKS.md: In ZooKeeper`
//! - **while it waits**: `it::mutex::a_wait_costs_a_handful_of_commands_however_long`,
//!   `it::redlock::waiting::a_waiter_and_a_dead_master_cost_little`,
//!   `it::on_postgres::load::a_wait_writes_nothing`,
//!   `it::on_mysql::load::a_long_wait_costs_a_few_looks_a_second`,
//!   `it::costs::a_wait_in_zookeeper_sends_nothing_but_heartbeats`,
//!   `it::mutex::threads_of_one_client_cost_what_one_does`,
//!   `BENCHMARKS.md: In PostgreSQL`, `BENCHMARKS.md: In ZooKeeper`
//! - **primitives**:
//!   `it::contract::exclusion::one_holder_at_a_time_between_clients_and_between_threads`,
//!   `it::contract::each_kind::a_latch_opens_for_all`,
//!   `it::contract::each_kind::permits_are_counted`,
//!   `it::contract::each_kind::counting_permits_are_counted`,
//!   `it::replicas::a_grant_is_on_the_replica_when_the_call_returns`,
//!   `it::redlock::primitives_that_need_a_single_server_are_refused`,
//!   `it::on_mysql::sessions::what_it_cannot_keep_is_refused_with_the_reason`,
//!   `it::on_mysql::shares::killed_connections_cost_no_permit_and_let_nobody_in`,
//!   `it::on_zookeeper::primitives::what_a_session_cannot_do_is_refused_with_the_reason`
//! - **who is next**:
//!   `it::contract::exclusion::threads_of_two_clients_never_overlap_and_all_get_in`,
//!   `it::contract::each_kind::clients_share_a_mutex`,
//!   `it::redlock::no_client_keeps_it_for_itself`,
//!   `it::contract::each_kind::a_fair_lock_is_given_in_the_order_of_arrival`,
//!   `curator::turns::turns_are_in_the_order_of_the_queue`
//! - **stays taken after its guard ([`min_hold`](crate::ReentrantMutex::min_hold))**:
//!   `it::contract::min_hold::it_stays_taken_until_its_time_is_over_and_no_longer`,
//!   `it::contract::min_hold::it_outlasts_a_short_lease`
//! - **[data](crate::ReentrantMutex::with_data) beside a hold**:
//!   `it::contract::data::it_is_shown_with_the_grant_and_only_while_its_writer_holds`,
//!   `it::contract::data::redlock_refuses_it`,
//!   `it::on_mysql::sessions::what_it_cannot_keep_is_refused_with_the_reason`
//! - **[elections](crate::LockClient::election)**:
//!   `it::contract::election::one_leads_and_when_it_resigns_another_one_does`,
//!   `it::contract::election::redlock_refuses_it`,
//!   `it::on_mysql::sessions::what_it_cannot_keep_is_refused_with_the_reason`
//! - **fencing tokens grow over**:
//!   `it::restarts::a_restart_without_data_is_a_loss_and_tokens_grow_over_it`,
//!   `it::sentinel::failover::a_master_that_is_cut_off_alive_is_left`,
//!   `it::redlock::tokens::tokens_grow_over_clocks_that_are_behind_and_masters_that_forget`,
//!   `it::on_postgres::replication::hosts_change_roles`,
//!   `it::on_mysql::faults::holds_survive_a_restart`,
//!   `it::on_zookeeper::loss::holds_and_places_survive_the_leader`
//! - **what can check them**:
//!   `it::cluster::primitives::latches_counts_and_fenced_values_work_on_the_node_of_their_slot`,
//!   `it::fencing_sql::with_a_claim_the_late_write_is_refused`,
//!   `it::on_postgres::fence::a_late_holder_cannot_commit`,
//!   `it::redlock::primitives_that_need_a_single_server_are_refused`,
//!   `it::on_zookeeper::primitives::what_a_session_cannot_do_is_refused_with_the_reason`
//! - **shared with Java**: `interop::turns::leasehold_holds_and_redisson_waits`,
//!   `interop::turns::redisson_holds_and_leasehold_waits`,
//!   `curator::turns::ours_holds_and_curator_waits`, `curator::turns::curator_holds_and_ours_waits`
//! - **The holder dies**:
//!   `it::contract::leases::a_killed_holder_delays_the_next_by_no_more_than_its_lease`
//! - **The holder is suspended**:
//!   `it::contract::leases::a_suspended_holder_knows_of_its_loss_when_it_resumes`
//! - **The client is cut off**:
//!   `it::contract::leases::a_lease_ends_in_time_while_the_network_is_silent`,
//!   `curator::cut::a_holder_that_is_cut_off_knows_before_the_next_one_has_the_lock`
//! - **A reply is lost**: `it::contract::lost_replies::a_lost_acquire_leaves_nothing_behind`,
//!   `it::contract::lost_replies::a_waiter_whose_reply_was_lost_leaves_nothing_and_gets_in`
//! - **a server restarts with its data**: `it::restarts::a_restart_with_data_keeps_the_hold`,
//!   `it::redlock::quarantine::durable_masters_vote_at_once_when_they_come_back_with_their_data`,
//!   `it::on_postgres::faults::locks_outlive_a_restart_and_a_crash`,
//!   `it::on_mysql::faults::holds_survive_a_restart`,
//!   `it::on_zookeeper::loss::a_hold_survives_its_connection_and_a_restart`
//! - **a server comes back empty**:
//!   `it::restarts::a_restart_without_data_is_a_loss_and_tokens_grow_over_it`,
//!   `it::redlock::quarantine::a_master_that_restarts_empty_gives_no_lock_to_a_second_holder`,
//!   `it::on_zookeeper::loss::a_server_that_lost_its_data_is_used_again`
//! - **the server is gone for good, another takes over**:
//!   `it::sentinel::failover::a_hold_that_the_new_master_has_is_renewed_there`,
//!   `it::sentinel::failover::a_master_that_is_cut_off_alive_is_left`,
//!   `it::replicas::a_failover_to_the_replica_keeps_the_hold`,
//!   `it::on_mysql::promotion::a_promoted_replica_keeps_what_it_has_and_the_rest_is_lost`,
//!   `it::redlock::masters_down::one_master_in_trouble_stops_nobody`,
//!   `it::on_postgres::replication::what_an_asynchronous_standby_did_not_have_is_told_as_lost`,
//!   `it::on_postgres::replication::a_synchronous_standby_forgets_nothing`,
//!   `it::on_zookeeper::loss::holds_and_places_survive_the_leader`
//! - **one of several is away**: `it::replicas::a_grant_that_too_few_replicas_have_is_undone`,
//!   `it::redlock::masters_down::one_master_in_trouble_stops_nobody`,
//!   `it::on_postgres::faults::a_synchronous_standby_that_is_away_leaves_nothing`,
//!   `it::on_postgres::faults::a_commit_whose_wait_for_the_standby_is_cancelled_grants_nothing`,
//!   `it::on_zookeeper::connecting::another_server_is_found_within_the_session`
//! - **the majority, or the only one, is away**:
//!   `it::loss::a_server_that_stays_away_ends_every_hold_in_time`,
//!   `it::contract::leases::a_lease_ends_in_time_while_the_server_is_suspended`,
//!   `it::redlock::masters_down::without_a_majority_a_hold_ends_in_time`,
//!   `it::on_postgres::faults::a_suspended_server_costs_the_lease_and_nothing_stays`,
//!   `it::on_mysql::faults::a_lease_ends_in_time_while_the_server_is_suspended`,
//!   `it::on_zookeeper::loss::without_a_majority_a_hold_ends_in_time_and_nobody_gets_in`
//! - **the old server goes on, cut off together with the holder**:
//!   `it::sentinel::failover::a_master_that_is_cut_off_alive_is_left`,
//!   `it::redlock::masters_down::without_a_majority_a_hold_ends_in_time`,
//!   `it::on_zookeeper::loss::a_client_whose_server_is_cut_off_from_the_leader_says_false_first`,
//!   `it::on_zookeeper::deposed::a_client_beside_a_leader_that_was_replaced_says_false_first`,
//!   `curator::faults::no_two_believe_in_a_lock_at_a_time`
#![cfg_attr(not(feature = "redis"), doc = include_str!("../links/redis.md"))]
#![cfg_attr(not(feature = "redlock"), doc = include_str!("../links/redlock.md"))]
