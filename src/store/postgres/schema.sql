-- leasehold on PostgreSQL. Run it as a whole, in one transaction; running it again does no harm.
-- The tables are in `leasehold`; the functions in `leasehold_v1`, so that those of another version
-- work beside them.
--
-- PostgreSQL looks for functions and operators in every schema of the search path. If `public`, for
-- example, has a function that matches the arguments better, then whoever made it would run code
-- with the rights of each caller. So this script and every function in it has a search path of its
-- own, in which nobody else can create anything; and the operators have the exact types of their
-- operands, so that no better match can exist anywhere.
BEGIN;
SET LOCAL search_path = pg_catalog, pg_temp;
SET LOCAL lock_timeout = '10s';
SET LOCAL statement_timeout = '10s';
SELECT pg_advisory_xact_lock(7811887140951745381);   -- two installations at once

-- Not IF NOT EXISTS, which demands the right to create schemas also from a role to which both were
-- given.
DO $$ BEGIN
  IF to_regnamespace('leasehold') IS NULL THEN CREATE SCHEMA leasehold; END IF;
  IF to_regnamespace('leasehold_v1') IS NULL THEN CREATE SCHEMA leasehold_v1; END IF;
END $$;

-- Somebody else may have made them first. Whoever owns a schema, a table or a function of them can
-- put code in it (a trigger, a body) that runs with the rights of whoever runs this script, and of
-- each client; and so can the owner of a function that a trigger of a table runs. Checked before
-- anything of theirs runs, and after the schemas exist: nobody else can make a new thing in a
-- schema that is ours.
DO $$ DECLARE what text; its_owner name; its_user name; BEGIN
  FOR what, its_owner, its_user IN
    -- A client asks the same when it connects: wire/owners.rs takes this query from here.
    SELECT o.thing, pg_get_userbyid(o.owner), current_user FROM (
        SELECT 'the schema ' || nspname AS thing, nspowner AS owner, 0 AS place FROM pg_namespace
          WHERE nspname IN ('leasehold', 'leasehold_v1')
        UNION ALL SELECT 'leasehold.' || relname, relowner, 1 FROM pg_class
          WHERE relnamespace = to_regnamespace('leasehold')
        UNION ALL SELECT 'the function leasehold_v1.' || proname, proowner, 2 FROM pg_proc
          WHERE pronamespace = to_regnamespace('leasehold_v1')
        UNION ALL SELECT 'the function ' || p.oid::regprocedure::text || ' of the trigger '
              || t.tgname, p.proowner, 3
          FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid JOIN pg_proc p ON p.oid = t.tgfoid
          WHERE c.relnamespace = to_regnamespace('leasehold')) o
      WHERE NOT EXISTS (SELECT FROM pg_roles r WHERE r.oid = o.owner
          AND (r.rolsuper OR r.rolname IN (current_user, session_user, 'pg_database_owner')))
        AND o.owner <> (SELECT datdba FROM pg_database WHERE datname = current_database())
      ORDER BY o.place, o.thing LIMIT 1
  LOOP
    RAISE EXCEPTION '% belongs to the role "%", whose code would run with the rights of "%"',
        what, its_owner, its_user
      USING ERRCODE = 'LH002',
        HINT = 'Look at what is in it; then drop it, or give it to one who may own it.';
  END LOOP;
  IF NOT EXISTS (SELECT FROM pg_roles r WHERE r.rolname = current_user
      AND (r.rolsuper OR r.rolname = 'pg_database_owner'
        OR r.oid = (SELECT datdba FROM pg_database WHERE datname = current_database()))) THEN
    RAISE WARNING 'only clients of the role "%" will use this schema: %', current_user,
        'it is neither the owner of the database nor a superuser'
      USING HINT = 'If other roles need locks, SET ROLE to the owner of the database before you '
        'run this script.';
  END IF;
END $$;

CREATE TABLE IF NOT EXISTS leasehold.meta (
  one     boolean PRIMARY KEY DEFAULT true CHECK (one),
  tables  int NOT NULL,                 -- version of the tables
  floor   bigint NOT NULL DEFAULT 0,    -- no token of a swept name was higher
  -- When a sweep last left nothing: see sweep.
  swept   timestamptz NOT NULL DEFAULT clock_timestamp()
);
INSERT INTO leasehold.meta (tables) VALUES (1) ON CONFLICT DO NOTHING;

-- One row for each name: everything that happens to the name happens while its row is locked. No
-- index except the key: every update is a HOT update.
CREATE TABLE IF NOT EXISTS leasehold.lock (
  name    text COLLATE "C" PRIMARY KEY,
  -- x exclusive (plain, fair, multi), r read-write, s semaphore, c count, l latch
  kind    "char" NOT NULL,
  holder  text COLLATE "C",             -- of the exclusive hold, or the writer
  -- Of a holder. Not 0 without one: a writer has left, and nobody has read since.
  level   int NOT NULL DEFAULT 0,
  -- Of the exclusive hold, by this server's clock.
  ends    timestamptz NOT NULL DEFAULT '-infinity',
  token   bigint NOT NULL DEFAULT 0,    -- the last one given
  tokens  int NOT NULL DEFAULT 1,       -- how many the last grant has: token and those before
  -- Permits in all; the count of a latch or counting semaphore.
  number  bigint,
  wants   text[],                       -- waiting clients: a release notifies all. Null for none
  wanted  timestamptz NOT NULL DEFAULT '-infinity',   -- when the first of them began
  barred  timestamptz NOT NULL DEFAULT '-infinity',   -- until then no new readers: a writer waits
  bars    text COLLATE "C",             -- that writer
  since   timestamptz NOT NULL DEFAULT 'epoch'   -- when ends or barred was written: see set_back
) WITH (fillfactor = 40, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000,
        autovacuum_vacuum_cost_delay = 0);

-- Readers, and permits.
CREATE TABLE IF NOT EXISTS leasehold.share (
  name    text COLLATE "C" NOT NULL,
  holder  text COLLATE "C" NOT NULL,
  level   int NOT NULL,                 -- read levels, or how many permits
  ends    timestamptz NOT NULL,
  since   timestamptz NOT NULL DEFAULT 'epoch',       -- when ends was written
  PRIMARY KEY (name, holder)
) WITH (fillfactor = 40, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000,
        autovacuum_vacuum_cost_delay = 0);

-- The waiters for a fair lock.
CREATE TABLE IF NOT EXISTS leasehold.waiter (
  name     text COLLATE "C" NOT NULL,
  place    bigint NOT NULL,
  holder   text COLLATE "C" NOT NULL,
  wake     text NOT NULL,               -- the channel of its client
  deadline timestamptz NOT NULL,        -- after that it counts as dead
  since    timestamptz NOT NULL DEFAULT 'epoch',      -- when deadline was written
  PRIMARY KEY (name, place)
) WITH (fillfactor = 60, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000);
CREATE SEQUENCE IF NOT EXISTS leasehold.place;

-- The answer to a change of a count, in case it is repeated; 2: it was undone, or must not run; 3:
-- permits were taken. A client removes a mark when it has the answer, and for taken permits the
-- answer to their return.
CREATE TABLE IF NOT EXISTS leasehold.once (
  id      text COLLATE "C" PRIMARY KEY,
  status  int NOT NULL,
  value   bigint NOT NULL,
  ends    timestamptz NOT NULL
);
-- For sweeps. The other tables have none, because each renewal would write it.
CREATE INDEX IF NOT EXISTS once_ends ON leasehold.once (ends);

-- Checked at the end of a transaction: see fence_at_commit.
CREATE TABLE IF NOT EXISTS leasehold.fenced (
  id      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  name    text NOT NULL,
  token   bigint NOT NULL
);

-- The owner of a client, for people. Nothing depends on it.
CREATE TABLE IF NOT EXISTS leasehold.client (
  id      text COLLATE "C" PRIMARY KEY,
  owner   text NOT NULL,
  ends    timestamptz NOT NULL          -- by this server's clock
);

-- What the last holder of a lock that has data has written: see data_keep.
CREATE TABLE IF NOT EXISTS leasehold.data (
  name    text COLLATE "C" PRIMARY KEY,
  holder  text COLLATE "C" NOT NULL,
  number  bigint NOT NULL,              -- of the change, for late ones
  data    bytea NOT NULL,
  asked   bigint NOT NULL DEFAULT 0,    -- when somebody last asked the holder for the lock
  ends    timestamptz NOT NULL          -- of the lease, or when it was given up
) WITH (fillfactor = 60);

-- What is known of the occurrences of scheduled jobs. Their leases are rows of leasehold.lock.
CREATE TABLE IF NOT EXISTS leasehold.done (
  name        text COLLATE "C" NOT NULL,      -- of the lease
  occurrence  text COLLATE "C" NOT NULL,
  attempts    int NOT NULL,                   -- how many have begun
  not_before  timestamptz NOT NULL DEFAULT '-infinity',
  holder      text COLLATE "C",               -- who has begun the last one, or done it
  who         text,                           -- the same, for people
  at          timestamptz,                    -- when it was done; null: it is not
  again       boolean NOT NULL DEFAULT false, -- it was forgotten since it, or a newer one, was done
  ends        timestamptz NOT NULL,           -- after that only the newest one counts
  PRIMARY KEY (name, occurrence)
);
CREATE INDEX IF NOT EXISTS done_ends ON leasehold.done (ends);   -- for sweeps

-- Functions with a body like these have their operators bound when they are created, and need no
-- search path.
CREATE OR REPLACE FUNCTION leasehold_v1.ms(p interval) RETURNS bigint
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
  RETURN greatest(ceil(extract(epoch FROM p) * 1000.0), 1.0)::bigint;
CREATE OR REPLACE FUNCTION leasehold_v1.span(p_ms bigint) RETURNS interval
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
  RETURN p_ms::float8 * interval '1 ms';
CREATE OR REPLACE FUNCTION leasehold_v1.micros(p timestamptz) RETURNS bigint
    LANGUAGE sql STABLE PARALLEL SAFE
  RETURN (extract(epoch FROM p) * 1000000.0)::bigint;

-- The same time as a number of hours, not days: a day is not always as long in the time zone of a
-- session.
CREATE OR REPLACE FUNCTION leasehold_v1.hours(p interval) RETURNS interval
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
  RETURN make_interval(secs => extract(epoch FROM p)::float8);
-- A time that was written at p_since, if that is yet to come: as far from now as it was from then.
-- One that was over then stays over; '-infinity' cannot be subtracted from.
CREATE OR REPLACE FUNCTION leasehold_v1.from_now(p_ends timestamptz, p_since timestamptz)
    RETURNS timestamptz LANGUAGE sql VOLATILE PARALLEL SAFE
  RETURN CASE WHEN p_ends > p_since THEN clock_timestamp() + leasehold_v1.hours(p_ends - p_since)
              ELSE p_ends END;

-- set_back: what follows if the server's clock was set back. Whoever finds a row of a name that was
-- written in the future calls it. Without it, a holder that died before the clock was set back by
-- an hour would have its lock for an hour more than its lease, and a dead waiter its place. From
-- here on each lasts as long as it did when it was written: never too short, because some time has
-- passed since then. It has to be written: a look alone cannot know when the clock was set. Answers
-- the row of the name. Repeat-safe: what was moved is not of the future any more.
-- The clock is read for each row, after a wait for it: a renewal may have written the row
-- meanwhile, and then it is left.
CREATE OR REPLACE FUNCTION leasehold_v1.set_back(p_name text) RETURNS leasehold.lock
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE r leasehold.lock;
BEGIN
  UPDATE leasehold.lock SET ends = leasehold_v1.from_now(ends, since),
      barred = leasehold_v1.from_now(barred, since),
      since = clock_timestamp()
    WHERE name = p_name AND since > clock_timestamp();
  UPDATE leasehold.share SET ends = leasehold_v1.from_now(ends, since), since = clock_timestamp()
    WHERE name = p_name AND since > clock_timestamp();
  UPDATE leasehold.waiter SET deadline = leasehold_v1.from_now(deadline, since),
      since = clock_timestamp()
    WHERE name = p_name AND since > clock_timestamp();
  SELECT * INTO r FROM leasehold.lock WHERE name = p_name;
  RETURN r;
END $$;

-- The row of a name, made if there is none, locked against everybody. Null if a transaction is
-- fenced by it: nobody waits for that, because a fence may last for seconds and each waiter takes a
-- connection from others; the answer is 20 ms. The token of a new row starts above all that were
-- swept. It is read after the row is ours, because a sweep that removed the row has raised the
-- floor in the same transaction.
CREATE OR REPLACE FUNCTION leasehold_v1.row_of(p_name text, p_kind "char") RETURNS leasehold.lock
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE r leasehold.lock;
BEGIN
  LOOP
    SELECT * INTO r FROM leasehold.lock WHERE name = p_name FOR UPDATE SKIP LOCKED;
    IF FOUND THEN RETURN r; END IF;
    -- Waits behind those that have locked it for one request; this distinguishes them from a fence,
    -- which does not stop this.
    PERFORM FROM leasehold.lock WHERE name = p_name FOR NO KEY UPDATE;
    IF FOUND THEN
      SELECT * INTO r FROM leasehold.lock WHERE name = p_name FOR UPDATE SKIP LOCKED;
      IF FOUND THEN RETURN r; END IF;
      RETURN NULL;
    END IF;
    INSERT INTO leasehold.lock (name, kind) VALUES (p_name, p_kind) ON CONFLICT DO NOTHING;
    IF FOUND THEN
      UPDATE leasehold.lock SET token = (SELECT floor FROM leasehold.meta)
        WHERE name = p_name RETURNING * INTO r;
      RETURN r;
    END IF;
  END LOOP;
END $$;

-- Whether the row is used for something of another kind. An unused row can become anything.
CREATE OR REPLACE FUNCTION leasehold_v1.is_other(r leasehold.lock, p_kind "char") RETURNS boolean
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF r.kind <> p_kind AND (r.since > clock_timestamp()
      OR EXISTS (SELECT FROM leasehold.share s
          WHERE s.name = r.name AND s.since > clock_timestamp())) THEN
    r := leasehold_v1.set_back(r.name);
  END IF;
  RETURN r.kind <> p_kind AND (
    (r.holder IS NOT NULL AND r.ends > clock_timestamp()) OR r.number IS NOT NULL
    OR EXISTS (SELECT FROM leasehold.share s WHERE s.name = r.name AND s.ends > clock_timestamp()));
END $$;

-- The client of a holder.
CREATE OR REPLACE FUNCTION leasehold_v1.client(p_holder text) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
  RETURN split_part(p_holder, ':', 1);

-- Whether the next release notifies this waiter anyway: then waiting writes nothing. Either its
-- client is in the set, or the set is full, which is as good: the channel is that of the name, so a
-- message also reaches clients that are not in the set, and only a message empties the set.
CREATE OR REPLACE FUNCTION leasehold_v1.is_told(p_wants text[], p_holder text) RETURNS boolean
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
  RETURN coalesce(
    leasehold_v1.client(p_holder) = ANY (p_wants) OR cardinality(p_wants) >= 16, false);

-- Records in a row, which the caller has locked and read, that a client waits.
CREATE OR REPLACE FUNCTION leasehold_v1.wait_for(r leasehold.lock, p_holder text) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF NOT leasehold_v1.is_told(r.wants, p_holder) THEN
    UPDATE leasehold.lock SET wants = array_append(r.wants, leasehold_v1.client(p_holder)),
        wanted = CASE WHEN r.wants IS NULL THEN clock_timestamp() ELSE wanted END
      WHERE name = r.name;
  END IF;
END $$;

-- Notifies the waiters for a row, which the caller has locked. Now and then the set is emptied: a
-- client that still waits receives this message and is recorded again, and one that has died or
-- given up is forgotten. Answers how many other clients wait.
CREATE OR REPLACE FUNCTION leasehold_v1.tell(p_name text, p_wants text[], p_wanted timestamptz,
    p_holder text, p_wake text) RETURNS bigint LANGUAGE plpgsql
  SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF p_wants IS NULL THEN RETURN 0; END IF;
  IF p_wake <> '' THEN
    PERFORM pg_notify(p_wake, '');
    IF p_wanted < clock_timestamp() - interval '1 s' THEN
      UPDATE leasehold.lock SET wants = NULL WHERE name = p_name;
    END IF;
  END IF;
  RETURN cardinality(array_remove(p_wants, leasehold_v1.client(p_holder)));
END $$;

-- tell_apart: notifies the waiters for a name that something else has freed, or may have freed. For
-- whatever commits synchronously: a commit with messages holds one lock of the whole server, so
-- while one waits for a standby, no other session of any database could commit with messages. Not
-- synchronous itself. Waits for no row. Repeat-safe: it is one message more.
CREATE OR REPLACE FUNCTION leasehold_v1.tell_apart(p_name text, p_wake text) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE r leasehold.lock; head leasehold.waiter;
BEGIN
  PERFORM set_config('synchronous_commit', 'off', true);
  -- A waiter for a latch, or for a job, leaves no mark.
  PERFORM pg_notify(p_wake, '');
  SELECT * INTO r FROM leasehold.lock WHERE name = p_name AND wants IS NOT NULL
    FOR NO KEY UPDATE SKIP LOCKED;
  IF FOUND THEN PERFORM leasehold_v1.tell(p_name, r.wants, r.wanted, '', p_wake); END IF;
  SELECT * INTO head FROM leasehold.waiter w WHERE w.name = p_name
    ORDER BY (w.deadline <= clock_timestamp()), w.place LIMIT 1;
  IF FOUND THEN PERFORM pg_notify(head.wake, head.holder); END IF;
END $$;

-- reenter: one more level for a holder that has the lock (plain, fair, or of a writer). It takes
-- nothing from anybody, so it passes a fence. p_held: the levels it has. Answers 1 token | 2 it has
-- lost it. Repeat-safe: levels are set.
CREATE OR REPLACE FUNCTION leasehold_v1.reenter(p_name text, p_holder text, p_lease bigint,
    p_held int, OUT status int, OUT value bigint) LANGUAGE plpgsql
  SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  FOR i IN 1 .. 2 LOOP
    UPDATE leasehold.lock SET level = p_held + 1,
        ends = greatest(ends, clock_timestamp() + leasehold_v1.span(p_lease)),
        since = clock_timestamp()
      WHERE name = p_name AND holder = p_holder AND ends > clock_timestamp()
        AND since <= clock_timestamp()
      RETURNING 1, token INTO status, value;
    IF FOUND THEN RETURN; END IF;
    PERFORM leasehold_v1.set_back(p_name);
  END LOOP;
  status := 2; value := 0;
END $$;

-- acquire: takes a lock for a holder, or answers how long it stays taken.
-- p_held: the levels it has, 0 for an outermost acquire. p_wait: above 0 for a waiter, which a
-- release has to notify. p_tokens: how many fencing tokens in a row it draws; the first is
-- answered.
-- p_waits: whether it waits for a row that another has locked. Not in a batch, several requests in
-- one transaction: there one name would delay all the others.
-- Answers 1 token | 0 ms, held by another | 2 it had it and has lost it | 5 the name has another
-- kind | 6 its row is locked at the moment: ask separately.
-- Repeat-safe: levels are set, not added to, and the holder is fresh for every outermost call.
CREATE OR REPLACE FUNCTION leasehold_v1.acquire(p_name text, p_holder text, p_lease bigint,
    p_held int, p_wait int, p_tokens int DEFAULT 1, p_waits boolean DEFAULT true, OUT status int,
    OUT value bigint) LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE r leasehold.lock; now timestamptz;
BEGIN
  IF p_held = 0 THEN
    -- Usually it is free: found and locked by one statement, which locks no row of a taken lock.
    PERFORM FROM leasehold.lock WHERE name = p_name AND kind = 'x'
      AND (holder IS NULL OR holder = p_holder OR ends <= clock_timestamp()) FOR UPDATE SKIP LOCKED;
    IF FOUND THEN
      now := clock_timestamp();
      UPDATE leasehold.lock SET holder = p_holder, level = 1,
          ends = now + leasehold_v1.span(p_lease), since = now, tokens = p_tokens,
          token = greatest(token + 1, leasehold_v1.micros(now)) + p_tokens - 1
        WHERE name = p_name RETURNING 1, token - p_tokens + 1 INTO status, value;
      RETURN;
    END IF;
  END IF;
  IF NOT p_waits THEN
    -- Locks what is locked below, so that nothing there waits.
    SELECT * INTO r FROM leasehold.lock WHERE name = p_name;
    IF FOUND AND p_held = 0
       AND (r.holder IS NULL OR r.holder = p_holder OR r.ends <= clock_timestamp()) THEN
      PERFORM FROM leasehold.lock WHERE name = p_name FOR UPDATE SKIP LOCKED;
      IF NOT FOUND THEN status := 6; value := 0; RETURN; END IF;
    ELSIF FOUND AND (p_held > 0 OR (p_wait > 0 AND NOT leasehold_v1.is_told(r.wants, p_holder))
                     OR r.since > clock_timestamp()) THEN
      PERFORM FROM leasehold.lock WHERE name = p_name FOR NO KEY UPDATE SKIP LOCKED;
      IF NOT FOUND THEN status := 6; value := 0; RETURN; END IF;
    END IF;
  END IF;
  IF p_held > 0 THEN
    SELECT e.status, e.value INTO status, value
      FROM leasehold_v1.reenter(p_name, p_holder, p_lease, p_held) e;
    RETURN;
  END IF;
  -- First without a lock: "busy" writes nothing, and waits for nobody.
  SELECT * INTO r FROM leasehold.lock WHERE name = p_name;
  now := clock_timestamp();
  IF r.since > now THEN r := leasehold_v1.set_back(p_name); now := clock_timestamp(); END IF;
  IF r.holder <> p_holder AND r.ends > now AND r.kind = 'x'
     AND (p_wait = 0 OR leasehold_v1.is_told(r.wants, p_holder)) THEN
    status := 0; value := leasehold_v1.ms(r.ends - now);
    RETURN;
  END IF;
  IF r.holder <> p_holder AND r.ends > now AND r.kind = 'x' THEN
    -- To record a waiter: a fence of the holder does not stop this.
    SELECT * INTO r FROM leasehold.lock WHERE name = p_name FOR NO KEY UPDATE;
    now := clock_timestamp();
    IF r.holder <> p_holder AND r.ends > now AND r.kind = 'x' THEN
      PERFORM leasehold_v1.wait_for(r, p_holder);
      status := 0; value := leasehold_v1.ms(r.ends - now);
      RETURN;
    END IF;
  END IF;
  -- The same as the first step of row_of.
  SELECT * INTO r FROM leasehold.lock WHERE name = p_name FOR UPDATE SKIP LOCKED;
  IF NOT FOUND THEN r := leasehold_v1.row_of(p_name, 'x'); END IF;
  IF r.name IS NULL THEN status := 0; value := 20; RETURN; END IF;
  now := clock_timestamp();
  IF r.kind <> 'x' AND leasehold_v1.is_other(r, 'x') THEN
    status := 5; value := 0;
  ELSIF r.holder <> p_holder AND r.ends > now THEN
    IF p_wait > 0 THEN PERFORM leasehold_v1.wait_for(r, p_holder); END IF;
    status := 0; value := leasehold_v1.ms(r.ends - now);
  ELSE
    UPDATE leasehold.lock SET kind = 'x', holder = p_holder, level = 1,
        ends = now + leasehold_v1.span(p_lease), since = now, tokens = p_tokens,
        token = greatest(token + 1, leasehold_v1.micros(now)) + p_tokens - 1
      WHERE name = p_name RETURNING 1, token - p_tokens + 1 INTO status, value;
  END IF;
END $$;

-- release: leaves p_left levels of a hold; with 0 frees it and notifies the waiters.
-- Answers 0 not held | 1 levels remain | 2 freed, value: how many other clients wait. They are
-- notified unless p_wake is empty.
-- Repeat-safe. Not synchronous: a crash that forgets a release leaves a lock taken for the rest of
-- its lease, no longer.
CREATE OR REPLACE FUNCTION leasehold_v1.release(p_name text, p_holder text, p_left int, p_wake text,
    OUT status int, OUT value bigint) LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE waiting text[]; since timestamptz;
  was text := set_config('synchronous_commit', 'off', true);
BEGIN
  status := 0; value := 0;
  IF p_left > 0 THEN
    UPDATE leasehold.lock SET level = p_left
      WHERE name = p_name AND holder = p_holder AND ends > clock_timestamp();
    IF FOUND THEN status := 1; END IF;
    RETURN;
  END IF;
  UPDATE leasehold.lock k SET holder = NULL, level = 0 WHERE name = p_name AND holder = p_holder
    RETURNING 2, k.wants, k.wanted INTO status, waiting, since;
  IF NOT FOUND THEN
    status := 0;
  ELSIF waiting IS NOT NULL THEN
    value := leasehold_v1.tell(p_name, waiting, since, p_holder, p_wake);
  END IF;
END $$;

-- keep: gives up a hold of one level (plain, fair, or of a writer) so that the lock stays taken for
-- p_ms more, whatever is left of its lease, and then ends. Under another holder, because a late
-- renewal would otherwise postpone the end. The waiters have to be notified (tell_apart): the end
-- that they know of is out of date.
-- Answers 0 not held | 1 kept.
-- Repeat-safe: a repeat only ever makes it end sooner. Synchronous: it may be longer than the lease
-- that is known.
CREATE OR REPLACE FUNCTION leasehold_v1.keep(p_name text, p_holder text, p_ms bigint,
    OUT status int, OUT value bigint) LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  value := 0;
  UPDATE leasehold.lock k SET holder = p_holder || ':kept', level = 1,
      ends = CASE k.holder WHEN p_holder THEN clock_timestamp() + leasehold_v1.span(p_ms)
                           ELSE least(k.ends, clock_timestamp() + leasehold_v1.span(p_ms)) END,
      since = clock_timestamp()
    WHERE name = p_name AND holder IN (p_holder, p_holder || ':kept') AND ends > clock_timestamp()
    RETURNING 1 INTO status;
  IF NOT FOUND THEN status := 0; END IF;
END $$;

-- renew: extends many leases, each only if its holder has the hold. A lease of 0 only checks.
-- p_waits: wait for rows that others have locked, as the last resort for one hold: if there is
-- always somebody who has locked the row, a renewal that never waits for it would starve.
-- A row that was written in the future, because the clock was set back: see set_back.
-- Answers one number each: 1 held | 0 gone | 2 its row is locked at the moment: ask again.
-- Repeat-safe. Rows are locked in the order of names, and otherwise none is waited for: no
-- deadlock, and one row delays no other.
CREATE OR REPLACE FUNCTION leasehold_v1.renew(p_names text[], p_holders text[], p_leases bigint[],
    p_waits boolean) RETURNS int[] LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE answer int[];
BEGIN
  IF p_waits THEN
    PERFORM FROM leasehold.lock k WHERE k.name = ANY (p_names) AND k.holder = ANY (p_holders)
      ORDER BY k.name FOR NO KEY UPDATE;
    PERFORM FROM leasehold.share s WHERE s.name = ANY (p_names) AND s.holder = ANY (p_holders)
      ORDER BY s.name, s.holder FOR NO KEY UPDATE;
  END IF;
  WITH ask AS MATERIALIZED (
    SELECT * FROM unnest(p_names, p_holders, p_leases) WITH ORDINALITY AS a(n, h, l, i)
  ), mine AS MATERIALIZED (
    SELECT k.name, k.holder, a.l FROM ask a JOIN leasehold.lock k ON k.name = a.n AND k.holder = a.h
      WHERE k.ends > clock_timestamp() ORDER BY k.name FOR NO KEY UPDATE OF k SKIP LOCKED
  ), raised AS (
    UPDATE leasehold.lock k SET since = clock_timestamp(), ends = clock_timestamp()
        + CASE WHEN k.since > clock_timestamp()
               THEN greatest(leasehold_v1.hours(k.ends - k.since), leasehold_v1.span(m.l))
               ELSE leasehold_v1.span(m.l) END FROM mine m
      WHERE k.name = m.name AND m.l > 0
        AND (k.ends < clock_timestamp() + leasehold_v1.span(m.l) OR k.since > clock_timestamp())
  ), shared AS MATERIALIZED (
    SELECT s.name, s.holder, a.l FROM ask a
      JOIN leasehold.share s ON s.name = a.n AND s.holder = a.h
      WHERE s.ends > clock_timestamp() ORDER BY s.name, s.holder FOR NO KEY UPDATE OF s SKIP LOCKED
  ), lifted AS (
    UPDATE leasehold.share s SET since = clock_timestamp(), ends = clock_timestamp()
        + CASE WHEN s.since > clock_timestamp()
               THEN greatest(leasehold_v1.hours(s.ends - s.since), leasehold_v1.span(m.l))
               ELSE leasehold_v1.span(m.l) END FROM shared m
      WHERE s.name = m.name AND s.holder = m.holder AND m.l > 0
        AND (s.ends < clock_timestamp() + leasehold_v1.span(m.l) OR s.since > clock_timestamp())
  )
  SELECT array_agg(CASE WHEN m.name IS NOT NULL OR s.name IS NOT NULL THEN 1
      WHEN EXISTS (SELECT FROM leasehold.lock k
            WHERE k.name = a.n AND k.holder = a.h AND k.ends > clock_timestamp())
        OR EXISTS (SELECT FROM leasehold.share k
            WHERE k.name = a.n AND k.holder = a.h AND k.ends > clock_timestamp())
      THEN 2 ELSE 0 END ORDER BY a.i)
    INTO answer
    FROM ask a LEFT JOIN mine m ON m.name = a.n AND m.holder = a.h
               LEFT JOIN shared s ON s.name = a.n AND s.holder = a.h;
  RETURN answer;
END $$;

-- locked: which of these names have a row that another transaction has locked at the moment.
-- Answers one number each: 1 it has | 0 it has not, or there is no such row. Waits for no row.
-- Repeat-safe: it changes nothing. Not synchronous: otherwise its commit would wait, with all these
-- rows locked, for a standby that is away.
CREATE OR REPLACE FUNCTION leasehold_v1.locked(p_names text[]) RETURNS int[] LANGUAGE plpgsql
  SET search_path = pg_catalog, pg_temp AS $$
DECLARE free text[];
BEGIN
  PERFORM set_config('synchronous_commit', 'off', true);
  free := ARRAY(SELECT k.name FROM leasehold.lock k WHERE k.name = ANY (p_names)
    ORDER BY k.name FOR NO KEY UPDATE SKIP LOCKED);
  RETURN ARRAY(SELECT (k.name IS NOT NULL AND k.name <> ALL (free))::int
    FROM unnest(p_names) WITH ORDINALITY AS a(n, i) LEFT JOIN leasehold.lock k ON k.name = a.n
    ORDER BY a.i);
END $$;

-- fair_acquire: like acquire, in the order of the queue.
-- p_keeps: how long in ms its place is kept without another try, 0 for a caller that does not wait.
-- p_place: the place it was given, 0 for none yet or unknown: one that lost it (it slept too long)
-- gets the same place back.
-- p_wake: the channel of its client. Answers like acquire, and: place, if it waits; next, the
-- waiter behind the granted one.
-- Repeat-safe: like acquire, and a waiter has one place, found by its holder if it does not know
-- the place.
CREATE OR REPLACE FUNCTION leasehold_v1.fair_acquire(p_name text, p_holder text, p_lease bigint,
    p_held int, p_keeps int, p_place bigint, p_wake text, OUT status int, OUT value bigint,
    OUT place bigint, OUT next text) LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE r leasehold.lock; now timestamptz; head leasehold.waiter; own leasehold.waiter;
  free boolean; fenced boolean := false; hint bigint;
BEGIN
  IF p_held > 0 THEN
    SELECT e.status, e.value INTO status, value
      FROM leasehold_v1.reenter(p_name, p_holder, p_lease, p_held) e;
    RETURN;
  END IF;
  -- A waiter keeps its place without locking the row while another holds the lock: with hundreds
  -- asking in turn, the row would be locked at all times, and no renewal of the holder would find
  -- it free. Not if a waiter ahead is dead, because somebody must remove it, and not if its own
  -- time is nearly over: a release at that moment could take it for dead and wake the one behind
  -- it. Not synchronous: a crash that forgets it has stopped all waiters.
  IF p_place > 0 AND p_keeps > 0 THEN
    SELECT * INTO r FROM leasehold.lock WHERE name = p_name;
    now := clock_timestamp();
    IF r.kind = 'x' AND r.holder <> p_holder AND r.ends > now AND r.since <= now THEN
      UPDATE leasehold.waiter w SET deadline = now + leasehold_v1.span(p_keeps), since = now
        WHERE w.name = p_name AND w.place = p_place AND w.holder = p_holder
          AND w.deadline > now + leasehold_v1.span(p_keeps / 4)
          AND NOT EXISTS (SELECT FROM leasehold.waiter d WHERE d.name = p_name AND d.place < p_place
                            AND (d.deadline <= now OR d.since > now));
      IF FOUND THEN
        PERFORM set_config('synchronous_commit', 'off', true);
        status := 0; value := least(leasehold_v1.ms(r.ends - now), p_keeps / 3); place := p_place;
        RETURN;
      END IF;
    END IF;
  END IF;
  -- A try writes nothing either.
  IF p_keeps = 0 THEN
    SELECT * INTO r FROM leasehold.lock WHERE name = p_name;
    now := clock_timestamp();
    IF r.kind = 'x' AND r.holder <> p_holder AND r.ends > now AND r.since <= now THEN
      status := 0; value := leasehold_v1.ms(r.ends - now); place := 0;
      RETURN;
    END IF;
  END IF;
  -- A fence of the holder does not stop the queue; only a grant needs to lock the whole row.
  SELECT * INTO r FROM leasehold.lock WHERE name = p_name FOR NO KEY UPDATE;
  IF NOT FOUND THEN
    r := leasehold_v1.row_of(p_name, 'x');
    IF r.name IS NULL THEN
      RAISE EXCEPTION 'the row of % came and is fenced', p_name USING ERRCODE = '55P03';
    END IF;
  END IF;
  now := clock_timestamp(); value := 0; place := 0;
  IF r.since > now THEN r := leasehold_v1.set_back(p_name); now := clock_timestamp(); END IF;
  IF r.kind <> 'x' AND leasehold_v1.is_other(r, 'x') THEN status := 5; RETURN; END IF;
  -- A waiter whose answer was lost does not know its place.
  SELECT * INTO own FROM leasehold.waiter w WHERE w.name = p_name
    AND CASE WHEN p_place > 0 THEN w.place = p_place ELSE w.holder = p_holder END;
  p_place := coalesce(own.place, p_place);
  -- Waiters whose time is over are dead. If it is also over for the caller, the server was
  -- suspended and nobody could keep a place: all have one more try.
  IF own.deadline IS NULL OR own.deadline > now THEN
    DELETE FROM leasehold.waiter w WHERE w.name = p_name AND w.deadline <= now
      AND (p_place = 0 OR w.place < p_place);
  END IF;
  SELECT * INTO head FROM leasehold.waiter w WHERE w.name = p_name ORDER BY w.place LIMIT 1;
  IF head.since > now OR (p_place > 0 AND EXISTS (SELECT FROM leasehold.waiter w
      WHERE w.name = p_name AND w.place < p_place AND w.since > now)) THEN
    r := leasehold_v1.set_back(p_name); now := clock_timestamp();
    SELECT * INTO head FROM leasehold.waiter w WHERE w.name = p_name ORDER BY w.place LIMIT 1;
  END IF;
  free := r.holder IS NULL OR r.ends <= now OR r.holder = p_holder;
  IF free AND (r.holder = p_holder OR head.place IS NULL OR head.place = p_place
               OR (p_place > 0 AND p_place < head.place)) THEN
    PERFORM FROM leasehold.lock WHERE name = p_name FOR UPDATE SKIP LOCKED;
    IF FOUND THEN
      DELETE FROM leasehold.waiter w WHERE w.name = p_name AND w.place = p_place;
      SELECT w.holder INTO next FROM leasehold.waiter w
        WHERE w.name = p_name ORDER BY w.place LIMIT 1;
      UPDATE leasehold.lock SET kind = 'x', holder = p_holder, level = 1,
          ends = now + leasehold_v1.span(p_lease), since = now,
          token = greatest(token + 1, leasehold_v1.micros(now)), tokens = 1
        WHERE name = p_name RETURNING 1, token INTO status, value;
      RETURN;
    END IF;
    fenced := true;
  END IF;
  status := 0;
  hint := CASE WHEN fenced THEN 20
               ELSE leasehold_v1.ms(CASE WHEN free THEN head.deadline ELSE r.ends END - now) END;
  IF p_keeps = 0 THEN value := hint; RETURN; END IF;
  IF own.place IS NOT NULL THEN
    UPDATE leasehold.waiter w SET deadline = now + leasehold_v1.span(p_keeps), since = now
      WHERE w.name = p_name AND w.place = p_place;
    place := p_place;
  ELSE
    place := CASE WHEN p_place > 0 THEN p_place ELSE nextval('leasehold.place') END;
    INSERT INTO leasehold.waiter (name, place, holder, wake, deadline, since)
      VALUES (p_name, place, p_holder, p_wake, now + leasehold_v1.span(p_keeps), now);
  END IF;
  value := least(hint, p_keeps / 3);
END $$;

-- fair_release: like release, waking the head of the queue; or leaves the queue. p_place: its place
-- there, 0 if unknown. Answers 0 not held (it no longer waits) | 1 levels remain | 2 freed; and
-- next: the waiter whose turn it is, then value is 1; it is notified unless p_wake is empty.
-- Repeat-safe: a holder that is gone is not found again, and one message too many is a needless
-- try.
CREATE OR REPLACE FUNCTION leasehold_v1.fair_release(p_name text, p_holder text, p_left int,
    p_place bigint, p_wake text, OUT status int, OUT value bigint, OUT next text) LANGUAGE plpgsql
  SET search_path = pg_catalog, pg_temp AS $$
DECLARE now timestamptz; head leasehold.waiter; r leasehold.lock;
BEGIN
  PERFORM set_config('synchronous_commit', 'off', true);
  status := 0; value := 0;
  SELECT * INTO r FROM leasehold.lock WHERE name = p_name FOR NO KEY UPDATE;
  IF NOT FOUND THEN RETURN; END IF;
  now := clock_timestamp();
  IF p_left > 0 THEN
    UPDATE leasehold.lock SET level = p_left
      WHERE name = p_name AND holder = p_holder AND ends > now;
    IF FOUND THEN status := 1; END IF;
    RETURN;
  END IF;
  IF r.holder = p_holder THEN
    UPDATE leasehold.lock SET holder = NULL, level = 0 WHERE name = p_name;
    status := 2;
    -- Plain waiters of the same name.
    PERFORM leasehold_v1.tell(p_name, r.wants, r.wanted, p_holder, p_wake);
  ELSE
    DELETE FROM leasehold.waiter w WHERE w.name = p_name AND w.holder = p_holder
      AND (p_place = 0 OR w.place = p_place);
    -- A waiter that leaves the queue may already have been woken: it passes that on.
    IF NOT FOUND OR (r.holder IS NOT NULL AND r.ends > now) THEN RETURN; END IF;
  END IF;
  SELECT * INTO head FROM leasehold.waiter w
    WHERE w.name = p_name AND w.deadline > now ORDER BY w.place LIMIT 1;
  IF NOT FOUND THEN
    SELECT * INTO head FROM leasehold.waiter w WHERE w.name = p_name ORDER BY w.place LIMIT 1;
  END IF;
  IF FOUND THEN
    next := head.holder; value := 1;
    IF p_wake <> '' THEN PERFORM pg_notify(head.wake, head.holder); END IF;
  END IF;
END $$;

-- multi_acquire: several plain locks, all or none. Names are sorted by bytes, each once: rows are
-- locked in that order. p_held: the levels it has of each. p_again: an earlier run of this request
-- may have taken something.
-- Answers 1 and one token each, 0 for a part that was already held | 0 ms, at: that name is taken |
-- 2 at: that one was lost | 5 at: the name has another kind. Repeat-safe: levels are set, holders
-- are fresh, and p_again gives back first.
CREATE OR REPLACE FUNCTION leasehold_v1.multi_acquire(p_names text[], p_holders text[],
    p_held int[], p_lease bigint, p_wait int, p_again boolean, OUT status int, OUT value bigint,
    OUT at int, OUT tokens bigint[]) LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE rows leasehold.lock[]; r leasehold.lock; now timestamptz; t bigint;
BEGIN
  status := 1; value := 0; at := 0;
  -- First without a lock, as in acquire.
  IF p_wait = 0 AND NOT p_again THEN
    SELECT 0, leasehold_v1.ms(k.ends - clock_timestamp()), a.i INTO status, value, at
      FROM unnest(p_names, p_holders, p_held) WITH ORDINALITY AS a(n, h, c, i)
        JOIN leasehold.lock k ON k.name = a.n
      WHERE a.c = 0 AND k.kind = 'x' AND k.holder <> a.h AND k.ends > clock_timestamp()
        AND k.since <= clock_timestamp()
      ORDER BY a.i LIMIT 1;
    IF FOUND THEN RETURN; END IF;
    status := 1; value := 0; at := 0;
  END IF;
  FOR i IN 1 .. cardinality(p_names) LOOP
    IF p_held[i] > 0 THEN
      SELECT * INTO r FROM leasehold.lock WHERE name = p_names[i] FOR NO KEY UPDATE;
    ELSE
      r := leasehold_v1.row_of(p_names[i], 'x');
    END IF;
    now := clock_timestamp(); at := i;
    IF r.since > now THEN r := leasehold_v1.set_back(p_names[i]); now := clock_timestamp(); END IF;
    IF p_held[i] = 0 AND r.name IS NULL THEN
      status := 0; value := 20; EXIT;
    ELSIF r.kind <> 'x' AND leasehold_v1.is_other(r, 'x') THEN
      status := 5; EXIT;
    ELSIF p_held[i] > 0 AND (r.holder IS DISTINCT FROM p_holders[i] OR r.ends <= now) THEN
      status := 2; EXIT;
    ELSIF p_held[i] = 0 AND r.holder <> p_holders[i] AND r.ends > now THEN
      IF p_wait > 0 THEN PERFORM leasehold_v1.wait_for(r, p_holders[i]); END IF;
      status := 0; value := leasehold_v1.ms(r.ends - now); EXIT;
    END IF;
    rows[i] := r;
  END LOOP;
  now := clock_timestamp();
  IF status <> 1 THEN
    -- What an earlier run of the same request took must not stay: somebody may have forced one of
    -- its locks open. One name after the other, because one statement would lock the rows in the
    -- order of its plan, and two calls could wait for each other.
    IF p_again THEN
      FOR i IN 1 .. cardinality(p_names) LOOP
        UPDATE leasehold.lock SET holder = NULL, level = 0
          WHERE name = p_names[i] AND kind = 'x' AND holder = p_holders[i] AND p_held[i] = 0;
      END LOOP;
    END IF;
    RETURN;
  END IF;
  at := 0;
  FOR i IN 1 .. cardinality(p_names) LOOP
    r := rows[i];
    t := CASE WHEN p_held[i] = 0 THEN greatest(r.token + 1, leasehold_v1.micros(now))
              ELSE r.token END;
    UPDATE leasehold.lock SET kind = 'x', holder = p_holders[i], level = p_held[i] + 1, token = t,
        tokens = CASE WHEN p_held[i] = 0 THEN 1 ELSE r.tokens END,
        ends = CASE WHEN p_held[i] = 0 THEN now + leasehold_v1.span(p_lease)
                    ELSE greatest(r.ends, now + leasehold_v1.span(p_lease)) END, since = now
      WHERE name = p_names[i];
    tokens[i] := CASE WHEN p_held[i] = 0 THEN t ELSE 0 END;
  END LOOP;
END $$;

-- multi_release: gives up several holds at once, in the order of their names. p_ms: for how long
-- each lock stays taken, like keep; 0 for one that does not, whose levels are set to p_left, like
-- release. p_wakes: one for each, an empty one notifies nobody: all are empty if one lock stays
-- taken. Messages are sent when all are free.
-- Answers one status each. Repeat-safe as those are. Synchronous if one stays taken.
CREATE OR REPLACE FUNCTION leasehold_v1.multi_release(p_names text[], p_holders text[],
    p_left int[], p_ms bigint[], p_wakes text[]) RETURNS int[] LANGUAGE plpgsql
  SET search_path = pg_catalog, pg_temp AS $$
DECLARE answer int[]; one record; synchronous text := current_setting('synchronous_commit');
BEGIN
  FOR i IN 1 .. cardinality(p_names) LOOP
    IF p_ms[i] > 0 THEN
      SELECT * INTO one FROM leasehold_v1.keep(p_names[i], p_holders[i], p_ms[i]);
    ELSE
      SELECT * INTO one FROM leasehold_v1.release(p_names[i], p_holders[i], p_left[i], p_wakes[i]);
    END IF;
    answer[i] := one.status;
  END LOOP;
  IF 0 < ANY (p_ms) THEN PERFORM set_config('synchronous_commit', synchronous, true); END IF;
  RETURN answer;
END $$;

-- read_acquire: a read hold. The levels of readers are in share, those of the writer in lock. Like
-- everybody, readers lock the row one after the other: none finds it locked by another and takes
-- that for a writer or a fence.
-- p_held: the read levels it has. Answers 1 | 0 ms, a writer holds or waits | 2 it had it and has
-- lost it | 5 as acquire. Repeat-safe: levels are set, and the holder is fresh.
CREATE OR REPLACE FUNCTION leasehold_v1.read_acquire(p_name text, p_holder text, p_lease bigint,
    p_held int, p_wait int, OUT status int, OUT value bigint) LANGUAGE plpgsql
  SET search_path = pg_catalog, pg_temp AS $$
DECLARE r leasehold.lock; now timestamptz; own leasehold.share; writing boolean;
BEGIN
  value := 0;
  -- First without a lock, as in acquire.
  IF p_held = 0 THEN
    SELECT * INTO r FROM leasehold.lock WHERE name = p_name;
    now := clock_timestamp();
    IF r.holder <> p_holder AND r.ends > now AND r.kind = 'r' AND r.since <= now
       AND (p_wait = 0 OR leasehold_v1.is_told(r.wants, p_holder)) THEN
      status := 0; value := leasehold_v1.ms(r.ends - now);
      RETURN;
    END IF;
  END IF;
  SELECT * INTO r FROM leasehold.lock WHERE name = p_name FOR NO KEY UPDATE;
  IF NOT FOUND THEN
    IF p_held > 0 THEN status := 2; RETURN; END IF;
    r := leasehold_v1.row_of(p_name, 'r');
    IF r.name IS NULL THEN status := 0; value := 20; RETURN; END IF;
  END IF;
  now := clock_timestamp();
  IF r.kind <> 'r' THEN
    IF p_held > 0 THEN status := 2; RETURN; END IF;
    IF leasehold_v1.is_other(r, 'r') THEN status := 5; RETURN; END IF;
  END IF;
  SELECT * INTO own FROM leasehold.share s
    WHERE s.name = p_name AND s.holder = p_holder AND s.ends > now;
  IF r.since > now OR own.since > now THEN
    r := leasehold_v1.set_back(p_name);
    now := clock_timestamp();
  END IF;
  IF own.name IS NULL THEN
    writing := r.kind = 'r' AND r.holder IS NOT NULL AND r.ends > now;
    IF p_held > 0 THEN
      -- A downgrade of unknown outcome: the holder may still be the writer, which excludes more
      -- than it needs to, and has its lease there.
      UPDATE leasehold.lock SET ends = greatest(ends, now + leasehold_v1.span(p_lease)), since = now
        WHERE name = p_name AND holder = p_holder AND writing;
      status := CASE WHEN FOUND THEN 1 ELSE 2 END;
      RETURN;
    END IF;
    IF writing OR r.barred > now THEN
      IF p_wait > 0 THEN PERFORM leasehold_v1.wait_for(r, p_holder); END IF;
      status := 0; value := leasehold_v1.ms(CASE WHEN writing THEN r.ends ELSE r.barred END - now);
      RETURN;
    END IF;
    -- The first reader takes over the lock from its last holder, whose fence stops this.
    IF r.kind <> 'r' OR NOT EXISTS (
        SELECT FROM leasehold.share s WHERE s.name = p_name AND s.ends > now) THEN
      PERFORM FROM leasehold.lock WHERE name = p_name FOR UPDATE SKIP LOCKED;
      IF NOT FOUND THEN status := 0; value := 20; RETURN; END IF;
      -- Without the holder whose lease has ended: its fence must not hold any more. Also if a
      -- writer has left since the last reader: to release changes no key, and the fence of a writer
      -- whose snapshot is older passes until the row was written under a lock for UPDATE.
      UPDATE leasehold.lock SET kind = 'r', holder = NULL, level = 0
        WHERE name = p_name AND (kind <> 'r' OR holder IS NOT NULL OR level <> 0);
    END IF;
  END IF;
  INSERT INTO leasehold.share AS s (name, holder, level, ends, since)
    VALUES (p_name, p_holder, p_held + 1, now + leasehold_v1.span(p_lease), now)
    ON CONFLICT (name, holder) DO UPDATE
      SET level = p_held + 1, ends = greatest(s.ends, EXCLUDED.ends), since = now;
  status := 1;
END $$;

-- write_acquire: the write hold. p_wait: how long in ms new readers are kept out for it without
-- another try, 0 for a caller that does not wait. Answers like acquire; 0 also while others read.
-- Repeat-safe like acquire.
CREATE OR REPLACE FUNCTION leasehold_v1.write_acquire(p_name text, p_holder text, p_lease bigint,
    p_held int, p_wait int, OUT status int, OUT value bigint) LANGUAGE plpgsql
  SET search_path = pg_catalog, pg_temp AS $$
DECLARE r leasehold.lock; now timestamptz; last timestamptz; written timestamptz;
BEGIN
  IF p_held > 0 THEN
    SELECT e.status, e.value INTO status, value
      FROM leasehold_v1.reenter(p_name, p_holder, p_lease, p_held) e;
    RETURN;
  END IF;
  -- First without a lock, as in acquire.
  SELECT * INTO r FROM leasehold.lock WHERE name = p_name;
  now := clock_timestamp(); value := 0;
  IF r.since > now THEN r := leasehold_v1.set_back(p_name); now := clock_timestamp(); END IF;
  IF r.holder <> p_holder AND r.ends > now AND r.kind = 'r'
     AND (p_wait = 0 OR leasehold_v1.is_told(r.wants, p_holder)) THEN
    status := 0; value := leasehold_v1.ms(r.ends - now);
    IF p_wait > 0 THEN value := least(value, p_wait / 3); END IF;
    RETURN;
  END IF;
  -- A try also looks for readers without a lock. A waiter writes that it waits.
  IF p_wait = 0 AND r.kind = 'r' THEN
    SELECT max(s.ends), max(s.since) INTO last, written FROM leasehold.share s
      WHERE s.name = p_name AND s.ends > now AND s.holder <> p_holder;
    IF last IS NOT NULL AND written <= now THEN
      status := 0;
      value := leasehold_v1.ms(last - now);
      RETURN;
    END IF;
  END IF;
  r := leasehold_v1.row_of(p_name, 'r');
  now := clock_timestamp();
  IF r.name IS NULL THEN status := 0; value := 20; RETURN; END IF;
  IF r.kind <> 'r' AND leasehold_v1.is_other(r, 'r') THEN status := 5; RETURN; END IF;
  IF r.holder <> p_holder AND r.ends > now THEN
    last := r.ends;
  ELSE
    -- First: this may wait for a renewal that began before the end of its lease, and whose result
    -- is then seen below.
    DELETE FROM leasehold.share s WHERE s.name = p_name AND s.ends <= now;
    SELECT max(s.ends), max(s.since) INTO last, written FROM leasehold.share s
      WHERE s.name = p_name AND s.ends > now AND s.holder <> p_holder;
    IF written > now THEN
      r := leasehold_v1.set_back(p_name); now := clock_timestamp();
      SELECT max(s.ends) INTO last FROM leasehold.share s
        WHERE s.name = p_name AND s.ends > now AND s.holder <> p_holder;
    END IF;
    IF last IS NOT NULL AND p_wait > 0 THEN
      -- Only while readers hold it: otherwise writers would starve readers.
      UPDATE leasehold.lock SET kind = 'r', barred = now + leasehold_v1.span(p_wait),
          bars = p_holder, since = now
        WHERE name = p_name;
    END IF;
  END IF;
  IF last IS NOT NULL THEN
    IF p_wait > 0 THEN PERFORM leasehold_v1.wait_for(r, p_holder); END IF;
    status := 0;
    value := leasehold_v1.ms(
      least(last, CASE WHEN p_wait > 0 THEN now + leasehold_v1.span(p_wait / 3) END) - now);
    RETURN;
  END IF;
  UPDATE leasehold.lock SET kind = 'r', holder = p_holder, level = 1,
      ends = now + leasehold_v1.span(p_lease), since = now, barred = '-infinity', bars = NULL,
      token = greatest(token + 1, leasehold_v1.micros(now)), tokens = 1
    WHERE name = p_name RETURNING 1, token INTO status, value;
END $$;

-- rw_release: leaves a holder p_writes and p_reads levels; also a downgrade, and for a writer that
-- only waited. Answers 0 not held | 1 levels or other readers remain | 2 freed or downgraded,
-- value: how many other clients wait. Repeat-safe: it states what remains, not what goes.
CREATE OR REPLACE FUNCTION leasehold_v1.rw_release(p_name text, p_holder text, p_writes int,
    p_reads int, p_wake text, OUT status int, OUT value bigint) LANGUAGE plpgsql
  SET search_path = pg_catalog, pg_temp AS $$
DECLARE r leasehold.lock; now timestamptz; writing boolean; own leasehold.share;
BEGIN
  PERFORM set_config('synchronous_commit', 'off', true);
  status := 0; value := 0;
  SELECT * INTO r FROM leasehold.lock WHERE name = p_name FOR NO KEY UPDATE;
  IF NOT FOUND THEN RETURN; END IF;
  now := clock_timestamp();
  writing := r.holder IS NOT DISTINCT FROM p_holder;
  SELECT * INTO own FROM leasehold.share s WHERE s.name = p_name AND s.holder = p_holder;
  IF r.since > now OR own.since > now THEN r := leasehold_v1.set_back(p_name); END IF;
  IF NOT writing AND (own.name IS NULL OR p_writes > 0) THEN
    IF r.bars = p_holder THEN
      UPDATE leasehold.lock SET barred = '-infinity', bars = NULL WHERE name = p_name;
      PERFORM leasehold_v1.tell(p_name, r.wants, r.wanted, p_holder, p_wake);
    END IF;
    RETURN;
  END IF;
  -- As in release: what has ended has no levels.
  IF p_writes + p_reads > 0 AND greatest(own.ends, CASE WHEN writing THEN r.ends END) <= now THEN
    RETURN;
  END IF;
  IF p_writes > 0 THEN
    UPDATE leasehold.lock SET level = p_writes WHERE name = p_name;
    status := 1; RETURN;
  END IF;
  IF p_reads > 0 THEN
    INSERT INTO leasehold.share AS s (name, holder, level, ends, since)
        VALUES (p_name, p_holder, p_reads, r.ends, now)
      ON CONFLICT (name, holder) DO UPDATE SET level = p_reads, since = now,
        ends = CASE WHEN writing THEN greatest(s.ends, EXCLUDED.ends) ELSE s.ends END;
    status := 1;
    IF NOT writing THEN RETURN; END IF;
  ELSE
    DELETE FROM leasehold.share s WHERE s.name = p_name AND s.holder = p_holder;
  END IF;
  IF writing THEN
    -- The level stays: see read_acquire.
    UPDATE leasehold.lock SET holder = NULL WHERE name = p_name;
  END IF;
  IF p_reads = 0
     AND EXISTS (SELECT FROM leasehold.share s WHERE s.name = p_name AND s.ends > now) THEN
    status := 1; RETURN;
  END IF;
  status := 2;
  value := leasehold_v1.tell(p_name, r.wants, r.wanted, p_holder, p_wake);
END $$;

-- permit_acquire: permits with leases. A semaphore is a row of kind s with the number of permits;
-- held ones are in share. p_holder: the id of these permits, fresh for each call.
-- Answers 1 | 0 ms, too few are free | 4 total, there are fewer in all | 5 another kind.
-- Repeat-safe: for an existing id the lease is set again and nothing more is taken.
CREATE OR REPLACE FUNCTION leasehold_v1.permit_acquire(p_name text, p_holder text, p_permits int,
    p_lease bigint, p_wait int, OUT status int, OUT value bigint) LANGUAGE plpgsql
  SET search_path = pg_catalog, pg_temp AS $$
DECLARE r leasehold.lock; now timestamptz; held bigint; first timestamptz; busy boolean;
  written timestamptz;
BEGIN
  value := 0;
  -- A try that finds too few writes nothing. One statement reads all that counts, as it was at one
  -- moment.
  IF p_wait = 0 THEN
    SELECT sum(s.level) + p_permits > k.number
          AND bool_and(s.holder <> p_holder AND s.since <= clock_timestamp()),
        min(s.ends) INTO busy, first
      FROM leasehold.lock k JOIN leasehold.share s ON s.name = k.name AND s.ends > clock_timestamp()
      WHERE k.name = p_name AND k.kind = 's' AND k.number >= p_permits GROUP BY k.number;
    IF busy THEN status := 0; value := leasehold_v1.ms(first - clock_timestamp()); RETURN; END IF;
  END IF;
  SELECT * INTO r FROM leasehold.lock WHERE name = p_name FOR NO KEY UPDATE;
  IF NOT FOUND OR (r.kind <> 's' AND NOT leasehold_v1.is_other(r, 's')) THEN
    status := 4;
    RETURN;
  END IF;
  IF r.kind <> 's' THEN status := 5; RETURN; END IF;
  IF r.number IS NULL THEN status := 4; RETURN; END IF;
  now := clock_timestamp();
  UPDATE leasehold.share SET since = now,
      ends = greatest(CASE WHEN since <= now THEN ends END, now + leasehold_v1.span(p_lease))
    WHERE name = p_name AND holder = p_holder AND ends > now;
  IF FOUND THEN status := 1; RETURN; END IF;
  IF r.number < p_permits THEN status := 4; value := r.number; RETURN; END IF;
  DELETE FROM leasehold.share s WHERE s.name = p_name AND s.ends <= now;
  SELECT coalesce(sum(s.level), 0), min(s.ends), max(s.since) INTO held, first, written
    FROM leasehold.share s WHERE s.name = p_name;
  IF written > now THEN
    PERFORM leasehold_v1.set_back(p_name); now := clock_timestamp();
    SELECT coalesce(sum(s.level), 0), min(s.ends) INTO held, first
      FROM leasehold.share s WHERE s.name = p_name AND s.ends > now;
  END IF;
  IF held + p_permits > r.number THEN
    IF p_wait > 0 THEN PERFORM leasehold_v1.wait_for(r, p_holder); END IF;
    status := 0; value := leasehold_v1.ms(first - now); RETURN;
  END IF;
  INSERT INTO leasehold.share (name, holder, level, ends, since)
    VALUES (p_name, p_holder, p_permits, now + leasehold_v1.span(p_lease), now);
  status := 1;
END $$;

-- permit_release: gives back what was taken under an id. Answers 0 there was none, or its lease had
-- ended | 2 given back, value: how many other clients wait. Repeat-safe: the id is gone after the
-- first run.
CREATE OR REPLACE FUNCTION leasehold_v1.permit_release(p_name text, p_holder text, p_wake text,
    OUT status int, OUT value bigint) LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE was timestamptz; r leasehold.lock;
BEGIN
  PERFORM set_config('synchronous_commit', 'off', true);
  status := 0; value := 0;
  SELECT * INTO r FROM leasehold.lock WHERE name = p_name FOR NO KEY UPDATE;
  DELETE FROM leasehold.share WHERE name = p_name AND holder = p_holder RETURNING ends INTO was;
  IF NOT FOUND THEN RETURN; END IF;
  value := leasehold_v1.tell(p_name, r.wants, r.wanted, p_holder, p_wake);
  IF was > clock_timestamp() THEN status := 2; END IF;
END $$;

-- count: changes counts that nobody holds: the latch, the counting semaphore, the number of
-- permits. p_what: begin (if there is none), add, take (like a hold: answers 0 if too few are left,
-- 4 if nobody has set any), back (of such a hold, if it was taken), return (of one that is known to
-- be taken, even if its mark is gone), down (at 0 the row is unused), drop. p_done: marks of this
-- client whose requests are answered, and so will not be repeated: they are removed.
-- Answers 1 value | 0 | 2 void | 5 another kind | 7 value, out of range; for back and return, value
-- is how many other clients wait. Nobody is notified: see tell_apart. Repeat-safe while the mark
-- under p_id is kept.
-- A latch that opens takes a new token, which shows a later reader that it was open in between.
CREATE OR REPLACE FUNCTION leasehold_v1.count(p_name text, p_kind "char", p_what text,
    p_number bigint, p_id text, p_keep int, p_wait int, p_done text[] DEFAULT '{}', OUT status int,
    OUT value bigint) LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE r leasehold.lock; m leasehold.once; now timestamptz; n bigint; held bigint := 0;
  mark boolean := true; opens boolean := false;
BEGIN
  IF cardinality(p_done) > 0 THEN DELETE FROM leasehold.once WHERE id = ANY (p_done); END IF;
  r := leasehold_v1.row_of(p_name, p_kind);
  IF r.name IS NULL THEN
    RAISE EXCEPTION '% was a lock, and a transaction is fenced by it', p_name
      USING ERRCODE = '55P03';
  END IF;
  now := clock_timestamp();
  SELECT * INTO m FROM leasehold.once WHERE id = p_id AND ends > now;
  IF FOUND AND p_what NOT IN ('back', 'return') THEN
    status := CASE m.status WHEN 3 THEN 1 ELSE m.status END; value := m.value;
    RETURN;
  END IF;
  value := coalesce(r.number, 0);
  IF r.kind <> p_kind AND leasehold_v1.is_other(r, p_kind)
      AND (p_what <> 'back' OR m.status = 3) THEN
    status := 5; RETURN;
  END IF;
  n := r.number;
  CASE p_what
  WHEN 'begin' THEN
    IF n IS NOT NULL THEN status := 0; RETURN; END IF;
    n := p_number; status := 1; value := n;
  WHEN 'add' THEN
    IF p_kind = 's' THEN
      SELECT coalesce(sum(s.level), 0) INTO held FROM leasehold.share s
          WHERE s.name = p_name AND s.ends > now;
    END IF;
    IF abs(value - held + p_number) > 2147483647 THEN
      status := 7;
      value := value - held;
      RETURN;
    END IF;
    n := value + p_number; status := 1; value := n - held;
  WHEN 'take' THEN
    IF n IS NULL OR r.kind <> p_kind THEN status := 4; value := 0; RETURN; END IF;
    IF value < p_number THEN
      IF p_wait > 0 THEN PERFORM leasehold_v1.wait_for(r, p_id); END IF;
      status := 0; value := -1; RETURN;
    END IF;
    n := value - p_number; status := 1; value := 0;
  WHEN 'back', 'return' THEN
    -- Also a mark in advance: if the original arrives late, it is answered 2 and takes nothing.
    IF m.status = 3 OR (p_what = 'return' AND m.id IS NULL) THEN
      n := value + p_number; status := 2;
    ELSE
      status := 0;
    END IF;
    value := 0;
  WHEN 'down' THEN
    IF n IS NULL THEN status := 0; value := 0; mark := true;
    ELSE
      n := nullif(n - 1, 0); status := 1; value := coalesce(n, 0);
      opens := n IS NULL;
    END IF;
  WHEN 'drop' THEN
    opens := n IS NOT NULL; mark := opens;
    status := opens::int; value := 0; n := NULL;
    IF p_kind = 's' AND opens THEN DELETE FROM leasehold.share s WHERE s.name = p_name; END IF;
  END CASE;
  IF n IS DISTINCT FROM r.number THEN
    UPDATE leasehold.lock SET kind = p_kind, number = n, holder = NULL,
        token = CASE WHEN opens AND p_kind = 'l' THEN greatest(token + 1, leasehold_v1.micros(now))
                     ELSE token END
      WHERE name = p_name;
  END IF;
  IF mark THEN
    INSERT INTO leasehold.once VALUES (p_id,
        CASE WHEN p_what IN ('back', 'return') THEN 2 WHEN p_what = 'take' THEN 3 ELSE status END,
        value, now + leasehold_v1.span(p_keep))
      ON CONFLICT (id) DO UPDATE
        SET status = EXCLUDED.status, value = EXCLUDED.value, ends = EXCLUDED.ends;
  END IF;
  IF status = 2 THEN value := leasehold_v1.tell(p_name, r.wants, r.wanted, p_id, ''); END IF;
END $$;

-- data_keep: called by whoever has locked the row of a lock, for its holder. Writes the data with
-- the end of the hold, unless the holder has written it with this number or a higher one; without
-- data only the end.
CREATE OR REPLACE FUNCTION leasehold_v1.data_keep(p_name text, p_holder text, p_number bigint,
    p_data bytea) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF p_data IS NULL THEN
    UPDATE leasehold.data d SET ends = k.ends FROM leasehold.lock k
      WHERE d.name = p_name AND d.holder = p_holder AND k.name = p_name AND k.holder = p_holder;
    RETURN;
  END IF;
  INSERT INTO leasehold.data AS d (name, holder, number, data, ends)
    SELECT p_name, p_holder, p_number, p_data, k.ends FROM leasehold.lock k
      WHERE k.name = p_name AND k.holder = p_holder
    ON CONFLICT (name) DO UPDATE SET ends = excluded.ends, holder = excluded.holder,
      asked = CASE WHEN d.holder = excluded.holder THEN d.asked ELSE 0 END,
      number = CASE WHEN d.holder = excluded.holder AND d.number >= excluded.number
                    THEN d.number ELSE excluded.number END,
      data = CASE WHEN d.holder = excluded.holder AND d.number >= excluded.number
                  THEN d.data ELSE excluded.data END;
END $$;

-- data_acquire: acquire, or fair_acquire, for a holder that has data, which is written with the
-- grant of an outermost acquire. p_fair: whether it is a fair lock, which p_place and p_wake are
-- for; p_wait is its p_keeps. Answers and repeats as those do: a repeat finds its own data.
CREATE OR REPLACE FUNCTION leasehold_v1.data_acquire(p_name text, p_holder text, p_lease bigint,
    p_held int, p_wait int, p_data bytea, p_fair boolean, p_place bigint, p_wake text,
    OUT status int, OUT value bigint, OUT place bigint, OUT next text) LANGUAGE plpgsql
  SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF p_fair THEN
    SELECT a.status, a.value, a.place, a.next INTO status, value, place, next FROM
      leasehold_v1.fair_acquire(p_name, p_holder, p_lease, p_held, p_wait, p_place, p_wake) a;
  ELSE
    SELECT a.status, a.value INTO status, value FROM
      leasehold_v1.acquire(p_name, p_holder, p_lease, p_held, p_wait) a;
  END IF;
  IF status = 1 THEN
    PERFORM leasehold_v1.data_keep(p_name, p_holder, 0, CASE p_held WHEN 0 THEN p_data END);
  END IF;
END $$;

-- data_release: release, or fair_release, for a holder that has data. With the last level the data
-- gets its end, or goes with an attempt of which nobody knows whether it was granted. Answers and
-- repeats as those do: a repeat finds no hold, and changes no data.
CREATE OR REPLACE FUNCTION leasehold_v1.data_release(p_name text, p_holder text, p_left int,
    p_fair boolean, p_place bigint, p_wake text, p_granted boolean, OUT status int,
    OUT value bigint, OUT next text) LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF p_fair THEN
    SELECT r.status, r.value, r.next INTO status, value, next
      FROM leasehold_v1.fair_release(p_name, p_holder, p_left, p_place, p_wake) r;
  ELSE
    SELECT r.status, r.value INTO status, value
      FROM leasehold_v1.release(p_name, p_holder, p_left, p_wake) r;
  END IF;
  IF status = 2 AND p_granted THEN
    UPDATE leasehold.data SET ends = clock_timestamp() WHERE name = p_name AND holder = p_holder;
  ELSIF status = 2 THEN
    DELETE FROM leasehold.data WHERE name = p_name AND holder = p_holder;
  END IF;
END $$;

-- data_renew: renew, for a batch in which some holders have data: its end moves with the lease.
-- Answers and repeats as renew does, or a number below -1 instead of 1: somebody has asked for the
-- lock, each time another number. Only data of rows that renew has locked is touched, so it waits
-- for nobody but a data_ask, which is one statement.
CREATE OR REPLACE FUNCTION leasehold_v1.data_renew(p_names text[], p_holders text[],
    p_leases bigint[], p_waits boolean) RETURNS bigint[] LANGUAGE plpgsql
  SET search_path = pg_catalog, pg_temp AS $$
DECLARE answer bigint[] := leasehold_v1.renew(p_names, p_holders, p_leases, p_waits);
BEGIN
  UPDATE leasehold.data d SET ends = k.ends
    FROM unnest(p_names, p_holders, p_leases, answer) AS a(n, h, l, held)
      JOIN leasehold.lock k ON k.name = a.n AND k.holder = a.h
    WHERE d.name = a.n AND d.holder = a.h AND a.held = 1 AND a.l > 0;
  RETURN (SELECT array_agg(CASE WHEN a.held = 1 AND d.asked > 1 THEN -d.asked ELSE a.held END
      ORDER BY a.i)
    FROM unnest(p_names, p_holders, answer) WITH ORDINALITY AS a(n, h, held, i)
      LEFT JOIN leasehold.data d ON d.name = a.n AND d.holder = a.h);
END $$;

-- data_ask: asks the holder of a lock that has data to give it up: its next renewal learns of it.
-- Answers 1 | 0 nobody with data has the lock. Repeat-safe: a repeat asks again.
CREATE OR REPLACE FUNCTION leasehold_v1.data_ask(p_name text) RETURNS int LANGUAGE plpgsql
  SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  UPDATE leasehold.data d
    SET asked = greatest(d.asked + 1, leasehold_v1.micros(clock_timestamp()))
    FROM leasehold.lock k
    WHERE d.name = p_name AND k.name = p_name AND k.holder = d.holder
      AND k.ends > greatest(k.since, clock_timestamp());
  RETURN CASE WHEN FOUND THEN 1 ELSE 0 END;
END $$;

-- data_set: replaces the data of a holder, if it has the lock. p_number: each change of the holder
-- has a higher one. Answers 1 | 0 the holder does not have the lock. Repeat-safe, and it may run
-- late: data with this number or a higher one is left.
CREATE OR REPLACE FUNCTION leasehold_v1.data_set(p_name text, p_holder text, p_number bigint,
    p_data bytea) RETURNS int LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  PERFORM FROM leasehold.lock
    WHERE name = p_name AND holder = p_holder AND ends > clock_timestamp() FOR NO KEY UPDATE;
  IF NOT FOUND THEN RETURN 0; END IF;
  PERFORM leasehold_v1.data_keep(p_name, p_holder, p_number, p_data);
  RETURN 1;
END $$;

-- data_last: the last holder with data, its data in hexadecimal, and how many milliseconds ago its
-- hold ended, -1 while it has the lock. No row: none within the last p_age seconds. Changes nothing.
CREATE OR REPLACE FUNCTION leasehold_v1.data_last(p_name text, p_age int)
    RETURNS TABLE (holder text, data text, ms bigint) LANGUAGE sql
  SET search_path = pg_catalog, pg_temp AS $$
  SELECT d.holder, encode(d.data, 'hex'), CASE WHEN EXISTS (SELECT FROM leasehold.lock k
        WHERE k.name = d.name AND k.holder = d.holder
          AND k.ends > greatest(k.since, clock_timestamp())) THEN -1
      WHEN d.ends >= clock_timestamp() THEN 0
      ELSE leasehold_v1.ms(clock_timestamp() - d.ends) END
    FROM leasehold.data d
    WHERE d.name = p_name AND d.ends > clock_timestamp() - p_age::float8 * interval '1 s'
$$;

-- inspect: who holds what under a name, with the data of the holder in hexadecimal, and whether that
-- is a count (a row without a holder). No row: it is unused.
CREATE OR REPLACE FUNCTION leasehold_v1.inspect(p_name text)
    RETURNS TABLE (kind text, holder text, level int, ms bigint, data text) LANGUAGE sql
  SET search_path = pg_catalog, pg_temp AS $$
  SELECT k.kind::text, k.holder || CASE k.kind WHEN 'r' THEN ':write' ELSE '' END, k.level,
      leasehold_v1.ms(k.ends - greatest(k.since, clock_timestamp())), encode(d.data, 'hex')
    FROM leasehold.lock k
      LEFT JOIN leasehold.data d ON d.name = k.name AND d.holder = k.holder
    WHERE k.name = p_name AND k.holder IS NOT NULL
      AND k.ends > greatest(k.since, clock_timestamp())
  UNION ALL
  SELECT k.kind::text, s.holder, s.level,
      leasehold_v1.ms(s.ends - greatest(s.since, clock_timestamp())), NULL
    FROM leasehold.share s JOIN leasehold.lock k USING (name)
    WHERE s.name = p_name AND s.ends > greatest(s.since, clock_timestamp())
  UNION ALL
  SELECT kind::text, NULL, 0, 0, NULL FROM leasehold.lock
    WHERE name = p_name AND number IS NOT NULL
$$;

-- counted: reads a count: for a semaphore the free and the held permits, for a latch the remaining
-- count and the token of its last opening. Answers 1 | 5 the name has another kind.
CREATE OR REPLACE FUNCTION leasehold_v1.counted(p_name text, p_kind "char", OUT status int,
    OUT number bigint, OUT more bigint) LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE r leasehold.lock;
BEGIN
  status := 1; number := 0; more := 0;
  SELECT * INTO r FROM leasehold.lock WHERE name = p_name;
  IF NOT FOUND THEN RETURN; END IF;
  IF r.kind <> p_kind THEN
    IF leasehold_v1.is_other(r, p_kind) THEN status := 5; END IF;
    RETURN;
  END IF;
  number := coalesce(r.number, 0);
  IF p_kind = 'l' THEN more := r.token; END IF;
  IF p_kind = 's' AND r.number IS NOT NULL THEN
    SELECT coalesce(sum(level), 0) INTO more FROM leasehold.share s
        WHERE s.name = p_name AND s.ends > clock_timestamp();
    number := number - more;
  END IF;
END $$;

-- force: frees a lock whoever holds it. The waiters have to be notified (tell_apart). Answers 1 it
-- was held | 0 it was free | 5 the name has another kind. Sent once: a repeat could force out the
-- next holder.
CREATE OR REPLACE FUNCTION leasehold_v1.force(p_name text, p_kind "char") RETURNS int
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE r leasehold.lock; was boolean;
BEGIN
  SELECT * INTO r FROM leasehold.lock WHERE name = p_name FOR NO KEY UPDATE;
  IF NOT FOUND THEN RETURN 0; END IF;
  IF r.kind <> p_kind THEN
    RETURN CASE WHEN leasehold_v1.is_other(r, p_kind) THEN 5 ELSE 0 END;
  END IF;
  was := (r.holder IS NOT NULL AND r.ends > clock_timestamp())
    OR EXISTS (SELECT FROM leasehold.share s WHERE s.name = p_name AND s.ends > clock_timestamp());
  DELETE FROM leasehold.share s WHERE s.name = p_name;
  -- The level stays: see read_acquire.
  UPDATE leasehold.lock SET holder = NULL WHERE name = p_name;
  RETURN was::int;
END $$;

-- queue: how many wait for a fair lock, and how many of them are ahead of the first waiter of the
-- client with this channel (null: it does not wait). Changes nothing.
CREATE OR REPLACE FUNCTION leasehold_v1.queue(p_name text, p_wake text, OUT length bigint,
    OUT ahead bigint) LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
  SELECT count(*), (SELECT count(*) FROM leasehold.waiter b WHERE b.name = p_name AND b.place <
      (SELECT min(place) FROM leasehold.waiter m WHERE m.name = p_name AND m.wake = p_wake))
    * CASE WHEN bool_or(wake = p_wake) THEN 1 ELSE NULL END
    FROM leasehold.waiter WHERE name = p_name
$$;

-- announce: a client publishes its owner, for p_ms milliseconds. Removes a few clients that could
-- not withdraw. Repeat-safe.
CREATE OR REPLACE FUNCTION leasehold_v1.announce(p_client text, p_owner text, p_ms bigint)
    RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  PERFORM set_config('synchronous_commit', 'off', true);
  DELETE FROM leasehold.client WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM leasehold.client WHERE ends < clock_timestamp() AND id <> p_client
      LIMIT 100 FOR UPDATE SKIP LOCKED));
  INSERT INTO leasehold.client AS c (id, owner, ends)
    VALUES (p_client, p_owner, clock_timestamp() + leasehold_v1.span(p_ms))
    ON CONFLICT (id) DO UPDATE SET owner = excluded.owner, ends = excluded.ends;
END $$;

-- withdraw: removes what the client published. Repeat-safe.
CREATE OR REPLACE FUNCTION leasehold_v1.withdraw(p_client text) RETURNS void LANGUAGE plpgsql
  SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  PERFORM set_config('synchronous_commit', 'off', true);
  DELETE FROM leasehold.client WHERE id = p_client;
END $$;

-- announced: the owner of a client, and for how many milliseconds that is valid. Changes nothing.
CREATE OR REPLACE FUNCTION leasehold_v1.announced(p_client text, OUT owner text, OUT ms bigint)
    RETURNS SETOF record LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
  SELECT c.owner, leasehold_v1.ms(c.ends - clock_timestamp()) FROM leasehold.client c
    WHERE c.id = p_client AND c.ends > clock_timestamp()
$$;

-- fence: inside the user's own transaction. From here to its end nobody else is granted the lock;
-- renewals and the release pass. Raises LH001 if the token is not one of the present grant. Calling
-- it again in the same transaction does no harm. A transaction that idles longer than p_idle is
-- ended by the server, so that a holder that is suspended inside it keeps nobody waiting for ever.
CREATE OR REPLACE FUNCTION leasehold_v1.fence(p_name text, p_token bigint, p_idle int DEFAULT 10000)
    RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
-- Not from pg_settings: that view computes every setting, which takes the server 2 ms and a fence
-- 0.05 ms. The value here has a unit ('10s', '1min'; '0' has none), which interval reads.
DECLARE now_idle interval := current_setting('idle_in_transaction_session_timeout');
BEGIN
  IF now_idle = interval '0' OR now_idle > leasehold_v1.span(p_idle) THEN
    PERFORM set_config('idle_in_transaction_session_timeout', p_idle::text, true);
  END IF;
  PERFORM FROM leasehold.lock
    WHERE name = p_name AND p_token > token - tokens AND p_token <= token AND holder IS NOT NULL
    FOR KEY SHARE;
  IF NOT FOUND THEN
    RAISE EXCEPTION 'the lock % is not held with fencing token % any more', p_name, p_token
      USING ERRCODE = 'LH001';
  END IF;
END $$;

-- fence_at_commit: the same check when the transaction commits. Until then nobody has to wait. At
-- once in a session in which triggers do not fire.
CREATE OR REPLACE FUNCTION leasehold_v1.fence_at_commit(p_name text, p_token bigint) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF current_setting('session_replication_role') = 'replica' THEN
    PERFORM leasehold_v1.fence(p_name, p_token);
  ELSE
    INSERT INTO leasehold.fenced (name, token) VALUES (p_name, p_token);
  END IF;
END $$;
CREATE OR REPLACE FUNCTION leasehold_v1.check_fenced() RETURNS trigger LANGUAGE plpgsql
  SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  PERFORM leasehold_v1.fence(NEW.name, NEW.token);
  DELETE FROM leasehold.fenced WHERE id = NEW.id;
  RETURN NULL;
END $$;
DO $$ BEGIN
  IF NOT EXISTS (SELECT FROM pg_trigger
      WHERE tgname = 'leasehold_v1' AND tgrelid = 'leasehold.fenced'::regclass) THEN
    CREATE CONSTRAINT TRIGGER leasehold_v1 AFTER INSERT ON leasehold.fenced
      DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION leasehold_v1.check_fenced();
  END IF;
END $$;

-- job_refusal: why an occurrence of a job must not begin, whoever holds the lease.
-- Answers 0 it may | 2 done, value: when in us since 1970, who: by whom | 4 a newer one was done,
-- who: which | 5 not yet, value: ms | 6 tried too often, value: attempts.
-- Repeat-safe: it only reads.
CREATE OR REPLACE FUNCTION leasehold_v1.job_refusal(p_name text, p_occurrence text, p_most int,
    OUT status int, OUT value bigint, OUT who text) LANGUAGE plpgsql
  SET search_path = pg_catalog, pg_temp AS $$
DECLARE r leasehold.done; newest text; now timestamptz := clock_timestamp();
BEGIN
  status := 0; value := 0;
  -- First: if the occurrence is done before the next statement, its row shows that, and it is not
  -- taken for one that has passed.
  SELECT d.occurrence INTO newest FROM leasehold.done d
    WHERE d.name = p_name AND d.at > now - interval '8760 hours'
    ORDER BY d.occurrence DESC LIMIT 1;
  SELECT * INTO r FROM leasehold.done
    WHERE name = p_name AND occurrence = p_occurrence AND ends > now;
  IF r.at IS NOT NULL THEN
    status := 2; value := leasehold_v1.micros(r.at); who := r.who;
    RETURN;
  END IF;
  IF newest >= p_occurrence COLLATE "C" AND r.again IS NOT TRUE THEN
    status := 4; who := newest;
  ELSIF r.attempts >= p_most THEN
    status := 6; value := r.attempts;
  ELSIF r.not_before > now THEN
    status := 5; value := leasehold_v1.ms(r.not_before - now);
  END IF;
END $$;

-- job_look: what is known of an occurrence of a job. p_most: the maximum number of attempts.
-- Answers as job_refusal, or 7 one runs, value: ms left of the lease, who: by whom, label: which
-- (null, and who is the holder, while its attempt has not begun).
-- Repeat-safe: it only reads.
CREATE OR REPLACE FUNCTION leasehold_v1.job_look(p_name text, p_occurrence text, p_most int,
    OUT status int, OUT value bigint, OUT who text, OUT label text) LANGUAGE plpgsql
  SET search_path = pg_catalog, pg_temp AS $$
DECLARE its_holder text; its_end timestamptz; now timestamptz;
BEGIN
  SELECT f.status, f.value, f.who INTO status, value, who
    FROM leasehold_v1.job_refusal(p_name, p_occurrence, p_most) f;
  IF status IN (2, 4) THEN RETURN; END IF;
  SELECT k.holder, k.ends, greatest(k.since, clock_timestamp()) INTO its_holder, its_end, now
    FROM leasehold.lock k WHERE k.name = p_name AND k.holder IS NOT NULL;
  IF its_end > now THEN
    SELECT d.who, d.occurrence INTO who, label FROM leasehold.done d
      WHERE d.name = p_name AND d.holder = its_holder AND d.at IS NULL;
    status := 7; value := leasehold_v1.ms(its_end - now); who := coalesce(who, its_holder);
  END IF;
END $$;

-- job_begin: counts an attempt at an occurrence, for the holder of the job's lease.
-- p_who: the holder, for people. p_keep: how long in ms the record is kept.
-- Answers as job_refusal, or 1 begun, value: attempts | 8 the holder does not hold the lease.
-- Repeat-safe: every run has a fresh holder, so a repeat finds that it has begun, and counts
-- nothing. One that comes after the lease was given up finds no holder.
CREATE OR REPLACE FUNCTION leasehold_v1.job_begin(p_name text, p_occurrence text, p_most int,
    p_holder text, p_who text, p_keep bigint, OUT status int, OUT value bigint, OUT who text)
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE now timestamptz;
BEGIN
  PERFORM FROM leasehold.lock WHERE name = p_name AND holder = p_holder FOR NO KEY UPDATE;
  IF NOT FOUND THEN status := 8; value := 0; RETURN; END IF;
  -- Not 0, if it was forgotten since.
  SELECT 1, greatest(d.attempts, 1) INTO status, value FROM leasehold.done d
    WHERE d.name = p_name AND d.occurrence = p_occurrence AND d.holder = p_holder
      AND d.at IS NULL;
  IF FOUND THEN RETURN; END IF;
  SELECT f.status, f.value, f.who INTO status, value, who
    FROM leasehold_v1.job_refusal(p_name, p_occurrence, p_most) f;
  IF status <> 0 THEN RETURN; END IF;
  now := clock_timestamp();
  INSERT INTO leasehold.done AS d (name, occurrence, attempts, holder, who, ends)
    VALUES (p_name, p_occurrence, 1, p_holder, p_who, now + leasehold_v1.span(p_keep))
    ON CONFLICT (name, occurrence) DO UPDATE SET
      attempts = CASE WHEN d.ends > now THEN d.attempts ELSE 0 END + 1,
      again = d.again AND d.ends > now, not_before = '-infinity', at = NULL,
      holder = p_holder, who = p_who, ends = now + leasehold_v1.span(p_keep)
    RETURNING 1, d.attempts INTO status, value;
END $$;

-- job_end: records how an attempt ended and gives up the lease, in one step.
-- p_pause: -1 done; else for how long in ms the next attempt must not begin. Those who wait for the
-- occurrence have to be notified (tell_apart).
-- Answers 1 recorded and given up | 0 the holder does not hold the lease: nothing is changed.
-- Repeat-safe: a repeat of a success finds its own record. Of a failure it finds no holder, and the
-- lease is free as it should be. It is synchronous, unlike a release: a success must be remembered.
CREATE OR REPLACE FUNCTION leasehold_v1.job_end(p_name text, p_occurrence text, p_holder text,
    p_who text, p_pause bigint, p_keep bigint) RETURNS int LANGUAGE plpgsql
  SET search_path = pg_catalog, pg_temp AS $$
DECLARE now timestamptz; is_held boolean; is_done boolean := p_pause < 0;
BEGIN
  UPDATE leasehold.lock SET holder = NULL, level = 0 WHERE name = p_name AND holder = p_holder;
  is_held := FOUND;
  -- Also if the holder has recorded it by job_done, and then failed.
  PERFORM FROM leasehold.done WHERE name = p_name AND occurrence = p_occurrence
    AND holder = p_holder AND at IS NOT NULL;
  IF FOUND AND (is_held OR is_done) THEN
    UPDATE leasehold.done SET ends = clock_timestamp() + leasehold_v1.span(p_keep)
      WHERE name = p_name AND occurrence = p_occurrence;
  ELSIF NOT is_held THEN
    RETURN 0;
  ELSE
    now := clock_timestamp();
    INSERT INTO leasehold.done AS d (name, occurrence, attempts, not_before, holder, who, at, ends)
      VALUES (p_name, p_occurrence, 1,
          -- Without a pause no moment: a look may have read the clock before this.
          CASE WHEN p_pause <= 0 THEN '-infinity' ELSE now + leasehold_v1.span(p_pause) END,
          p_holder, p_who, CASE WHEN is_done THEN now END, now + leasehold_v1.span(p_keep))
      ON CONFLICT (name, occurrence) DO UPDATE SET not_before = excluded.not_before,
        holder = p_holder, who = p_who, at = excluded.at, again = d.again AND NOT is_done,
        ends = excluded.ends;
  END IF;
  RETURN 1;
END $$;

-- job_done: inside the user's own transaction. Records the success of the run that has this fencing
-- token, and keeps everybody from the lease until the transaction ends: see fence.
-- Repeat-safe: a repeat records the same.
CREATE OR REPLACE FUNCTION leasehold_v1.job_done(p_name text, p_occurrence text, p_token bigint)
    RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  PERFORM leasehold_v1.fence(p_name, p_token);
  UPDATE leasehold.done d SET at = clock_timestamp(), again = false
    FROM leasehold.lock k WHERE k.name = p_name
      AND d.name = p_name AND d.occurrence = p_occurrence AND d.holder = k.holder;
  IF NOT FOUND THEN
    RAISE EXCEPTION 'the run % of % with fencing token % has not begun', p_occurrence, p_name,
        p_token
      USING ERRCODE = 'LH001';
  END IF;
END $$;

-- job_forget: lets an occurrence run again, whatever was done. p_keep: for how long in ms. Answers
-- whether anything was known of it. Sent once: a repeat could forget the next success.
CREATE OR REPLACE FUNCTION leasehold_v1.job_forget(p_name text, p_occurrence text, p_keep bigint)
    RETURNS boolean LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE is_known boolean; now timestamptz := clock_timestamp();
BEGIN
  SELECT attempts > 0 OR at IS NOT NULL INTO is_known FROM leasehold.done
    WHERE name = p_name AND occurrence = p_occurrence FOR UPDATE;
  INSERT INTO leasehold.done (name, occurrence, attempts, again, ends)
    VALUES (p_name, p_occurrence, 0, true, now + leasehold_v1.span(p_keep))
    ON CONFLICT (name, occurrence) DO UPDATE SET attempts = 0, not_before = '-infinity', at = NULL,
      again = true, ends = excluded.ends;
  RETURN coalesce(is_known, false);
END $$;

-- sweep and sweep_locks: remove what has been unused for p_age seconds, at most p_most rows of each
-- table; never wait for a row. Running them again does no harm.
-- When hundreds of programs start at once, one of them sweeps: a sweep does nothing within a tenth
-- of p_age after the last one. After a full batch the next one is due at once, whoever asks for it:
-- a program that lives for a second removes at least as much as it has left.
-- Two transactions, because the table of locks may be too large for the time that a statement may
-- take. Then the rest is removed all the same, and the attempt counts: otherwise every program that
-- starts would repeat it in vain.
-- sweep: the first of the two. Answers how many rows were removed | null: it is not due.
CREATE OR REPLACE FUNCTION leasehold_v1.sweep(p_age int, p_most int) RETURNS bigint LANGUAGE plpgsql
  SET search_path = pg_catalog, pg_temp AS $$
DECLARE n bigint; m bigint; now timestamptz := clock_timestamp();
  past timestamptz := now - leasehold_v1.span(p_age::bigint * 1000);
BEGIN
  PERFORM set_config('synchronous_commit', 'off', true);
  -- A time in the future is of a clock that was stepped back since.
  PERFORM FROM leasehold.meta
    WHERE swept <= now - leasehold_v1.span(p_age::bigint * 100) OR swept > now
    FOR UPDATE SKIP LOCKED;
  IF NOT FOUND THEN RETURN NULL; END IF;
  DELETE FROM leasehold.share WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM leasehold.share WHERE ends < past LIMIT p_most FOR UPDATE SKIP LOCKED));
  GET DIAGNOSTICS n = ROW_COUNT;
  DELETE FROM leasehold.waiter WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM leasehold.waiter WHERE deadline < past LIMIT p_most FOR UPDATE SKIP LOCKED));
  GET DIAGNOSTICS m = ROW_COUNT; n := n + m;
  DELETE FROM leasehold.once WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM leasehold.once WHERE ends < now LIMIT p_most FOR UPDATE SKIP LOCKED));
  GET DIAGNOSTICS m = ROW_COUNT; n := n + m;
  -- For longer than anything else: people ask who had a lock last.
  DELETE FROM leasehold.data WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM leasehold.data WHERE ends < now - greatest(now - past, interval '1 h')
      LIMIT p_most FOR UPDATE SKIP LOCKED));
  GET DIAGNOSTICS m = ROW_COUNT; n := n + m;
  -- Of each job the newest occurrence that was done is kept for a year.
  DELETE FROM leasehold.done WHERE ctid = ANY (ARRAY(
    SELECT d.ctid FROM leasehold.done d WHERE d.ends < past
        AND (d.at IS NULL OR d.at < now - interval '8760 hours'
          OR EXISTS (SELECT FROM leasehold.done m
              WHERE m.name = d.name AND m.occurrence > d.occurrence AND m.at IS NOT NULL))
      LIMIT p_most FOR UPDATE SKIP LOCKED));
  GET DIAGNOSTICS m = ROW_COUNT; n := n + m;
  UPDATE leasehold.meta SET swept = CASE WHEN n < p_most THEN now ELSE '-infinity' END;
  RETURN n;
END $$;

-- sweep_locks: the second one, for whoever had an answer to the first. The floor keeps the tokens
-- of removed names growing. Answers whether the next sweep is due at once.
CREATE OR REPLACE FUNCTION leasehold_v1.sweep_locks(p_age int, p_most int) RETURNS boolean
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE n bigint; most bigint; unused text[]; due boolean;
  past timestamptz := clock_timestamp() - leasehold_v1.span(p_age::bigint * 1000);
BEGIN
  PERFORM set_config('synchronous_commit', 'off', true);
  -- Locked by one statement and checked again by another: a statement does not see a share or a
  -- place that was committed after it began, and would remove the row of a lock that a reader has
  -- just taken.
  unused := ARRAY(SELECT l.name FROM leasehold.lock l WHERE l.number IS NULL AND l.ends < past
    AND (l.wants IS NULL OR l.wanted < past)
    AND NOT EXISTS (SELECT FROM leasehold.share s WHERE s.name = l.name)
    AND NOT EXISTS (SELECT FROM leasehold.waiter w WHERE w.name = l.name)
    LIMIT p_most FOR UPDATE SKIP LOCKED);
  WITH gone AS (
    DELETE FROM leasehold.lock k WHERE k.name = ANY (unused)
      AND NOT EXISTS (SELECT FROM leasehold.share s WHERE s.name = k.name)
      AND NOT EXISTS (SELECT FROM leasehold.waiter w WHERE w.name = k.name)
      RETURNING token)
  SELECT count(*), max(token) INTO n, most FROM gone;
  UPDATE leasehold.meta SET floor = greatest(floor, most),
      swept = CASE WHEN n < p_most THEN swept ELSE '-infinity' END
    RETURNING swept = '-infinity' INTO due;
  RETURN due;
END $$;
COMMIT;
