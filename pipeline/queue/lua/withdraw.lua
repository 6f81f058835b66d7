#!lua
-- Take waiting jobs out of the queue (cancelled). One in work is left to its worker, which reads
-- the cancellation in Postgres at its next window.
-- KEYS  1 ready ZSET
-- ARGV  id, id, ...
-- Returns the number that waited.
local waited = 0
for i = 1, #ARGV do waited = waited + redis.call('ZREM', KEYS[1], ARGV[i]) end
return waited
