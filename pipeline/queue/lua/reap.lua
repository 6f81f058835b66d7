#!lua
-- Take over leases that ran out, so that one reaper at a time settles them. If that reaper dies, the
-- takeover runs out too and another repeats the work.
-- KEYS  1 lease ZSET   2 owner HASH
-- ARGV  1 how many at most   2 takeover, ms   3 token of the reaper
-- Returns {id, id, ...}
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local expired = redis.call('ZRANGE', KEYS[1], '-inf', string.format('%.0f', now),
  'BYSCORE', 'LIMIT', 0, tonumber(ARGV[1]))
for _, id in ipairs(expired) do
  redis.call('ZADD', KEYS[1], 'XX', string.format('%.0f', now + tonumber(ARGV[2])), id)
  redis.call('HSET', KEYS[2], id, ARGV[3])
end
return expired
