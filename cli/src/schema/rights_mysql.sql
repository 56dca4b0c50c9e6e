
-- The rights that a user of the locks needs, and no others. Replace the database and the user, and take the comment marks away:
-- GRANT SELECT, INSERT, UPDATE, DELETE, TRIGGER ON shop.leasehold_lock TO app@'%';
-- GRANT SELECT, INSERT, UPDATE, DELETE, TRIGGER ON shop.leasehold_share TO app@'%';
-- GRANT SELECT, INSERT, UPDATE, DELETE, TRIGGER ON shop.leasehold_fence TO app@'%';
-- GRANT SELECT, INSERT, UPDATE, DELETE, TRIGGER ON shop.leasehold_client TO app@'%';
-- GRANT EXECUTE ON PROCEDURE shop.leasehold_fence TO app@'%';
