-- Tables and a procedure of leasehold for MySQL 8.0 and MariaDB 10.6 or later. Each statement may be run again, but the
-- last one, which fails if the procedure exists.
CREATE TABLE IF NOT EXISTS leasehold_lock (
  name   VARBINARY(1024) NOT NULL PRIMARY KEY,
  -- Null: free. A writer ends in :write. With ~r, who reads is in leasehold_share; with ~s it is a semaphore, and who has
  -- its permits is there. So whoever asks for a plain lock of this name finds it taken, and not free, whatever it is.
  holder VARBINARY(80),
  level  BIGINT NOT NULL DEFAULT 0,           -- of the holder; how many permits a semaphore has
  ends   BIGINT NOT NULL DEFAULT 0,           -- microseconds since 1970 by the server's clock, in UTC
  token  BIGINT UNSIGNED NOT NULL DEFAULT 0,  -- the last one given
  tokens INT NOT NULL DEFAULT 1,              -- how many the last grant has: token and those before
  fenced BOOLEAN NOT NULL DEFAULT 0           -- it has a row in leasehold_fence
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC COMMENT='leasehold 1';
-- Readers and permits. Whoever writes here has locked the row of the name in leasehold_lock.
CREATE TABLE IF NOT EXISTS leasehold_share (
  name   VARBINARY(1024) NOT NULL,
  holder VARBINARY(80) NOT NULL,
  -- Read levels, or how many permits; 0: a writer that waits, and keeps new readers out; -1: the holder is the id of a
  -- change of the semaphore, which must not be made again.
  level  INT NOT NULL,
  ends   BIGINT NOT NULL,
  PRIMARY KEY (name, holder)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC COMMENT='leasehold 1';
-- Apart from the lock: a fence keeps this row locked to the end of the user's transaction, and the lock is renewed meanwhile.
CREATE TABLE IF NOT EXISTS leasehold_fence (
  name   VARBINARY(1024) NOT NULL PRIMARY KEY,
  token  BIGINT UNSIGNED NOT NULL,
  tokens INT NOT NULL DEFAULT 1,
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
  UPDATE leasehold_fence SET fences = fences + 1
    WHERE name = p_name AND p_token <= token AND p_token + tokens > token;
  IF ROW_COUNT() <> 1 THEN
    SIGNAL SQLSTATE 'LH001' SET MYSQL_ERRNO = 1644, MESSAGE_TEXT = 'leasehold: another holder has taken the lock since';
  END IF;
END //
DELIMITER ;
