#!lua
-- Take waiting jobs out of the queue (cancelled). One in work is left to its worker, which reads
-- the cancellation in Postgres at its next window.
-- KEYS  1 ready ZSET   2 heads ZSET
-- ARGV  id, id, ...
-- Returns the number that waited.
local waited = 0
for i = 1, #ARGV do waited = waited + redis.call('ZREM', KEYS[1], ARGV[i]) end
-- a bound that no job has is put right by the next claim that looks; with nobody waiting none looks
if redis.call('EXISTS', KEYS[1]) == 0 then redis.call('DEL', KEYS[2]) end
return waited
