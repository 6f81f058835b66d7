#!lua
-- Rebuild: give each job that Postgres calls in work one lease without an owner. A live worker takes
-- it up at its next renewal; a dead one's runs out and is reaped. Nobody's lease is touched.
-- KEYS  1 ready ZSET   2 lease ZSET
-- ARGV  1 lease, ms   2.. ids
-- Returns {id, id, ...}: those seeded
local time = redis.call('TIME')
local lease_end = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000) + tonumber(ARGV[1]))
local seeded = {}
for i = 2, #ARGV do
  if not redis.call('ZSCORE', KEYS[1], ARGV[i]) then
    if redis.call('ZADD', KEYS[2], 'NX', lease_end, ARGV[i]) == 1 then seeded[#seeded + 1] = ARGV[i] end
  end
end
return seeded
