
-- The rights of a role that uses locks: uncomment these lines, and replace app by its name.
-- GRANT USAGE ON SCHEMA leasehold, leasehold_v1 TO app;
-- GRANT SELECT, INSERT, UPDATE, DELETE ON leasehold.lock, leasehold.share TO app;
-- GRANT SELECT, INSERT, UPDATE, DELETE ON leasehold.waiter TO app;
-- GRANT SELECT, INSERT, UPDATE, DELETE ON leasehold.once, leasehold.fenced TO app;
-- GRANT SELECT, INSERT, UPDATE, DELETE ON leasehold.client, leasehold.data, leasehold.done TO app;
-- GRANT SELECT, UPDATE ON leasehold.meta TO app;
-- GRANT USAGE ON ALL SEQUENCES IN SCHEMA leasehold TO app;
