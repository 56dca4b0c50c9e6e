-- Tables and a procedure of leasehold for MySQL 8.0 and MariaDB 10.6 or later. Each statement may be run again, but the
-- last one, which fails if the procedure exists.
CREATE TABLE IF NOT EXISTS leasehold_lock (
  name   VARBINARY(1024) NOT NULL PRIMARY KEY,
  holder VARBINARY(64),                       -- null: free
  level  INT UNSIGNED NOT NULL DEFAULT 0,
  ends   BIGINT NOT NULL DEFAULT 0,           -- microseconds since 1970 by the server's clock, in UTC
  token  BIGINT UNSIGNED NOT NULL DEFAULT 0,  -- of the last grant
  fenced BOOLEAN NOT NULL DEFAULT 0           -- it has a row in leasehold_fence
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC COMMENT='leasehold 1';
-- Apart from the lock: a fence keeps this row locked to the end of the user's transaction, and the lock is renewed meanwhile.
CREATE TABLE IF NOT EXISTS leasehold_fence (
  name   VARBINARY(1024) NOT NULL PRIMARY KEY,
  token  BIGINT UNSIGNED NOT NULL,
  fences BIGINT UNSIGNED NOT NULL DEFAULT 0
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC COMMENT='leasehold 1';
-- The owners of clients, for people.
CREATE TABLE IF NOT EXISTS leasehold_client (
  id    VARBINARY(1100) NOT NULL PRIMARY KEY,
  owner BLOB NOT NULL,
  ends  BIGINT NOT NULL
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC COMMENT='leasehold 1';
DELIMITER //
CREATE PROCEDURE leasehold_fence(p_name VARBINARY(1024), p_token BIGINT UNSIGNED) MODIFIES SQL DATA SQL SECURITY INVOKER
  COMMENT 'leasehold 1'
BEGIN
  -- Repeat-safe: it only counts. It writes, and does not only lock, so that the row is in the log of the transaction.
  UPDATE leasehold_fence SET fences = fences + 1 WHERE name = p_name AND token = p_token;
  IF ROW_COUNT() <> 1 THEN
    SIGNAL SQLSTATE 'LH001' SET MYSQL_ERRNO = 1644, MESSAGE_TEXT = 'leasehold: another holder has taken the lock since';
  END IF;
END //
DELIMITER ;
