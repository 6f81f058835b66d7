#!lua
-- Put jobs in the queue. Also the audit: a job that is already there, or in work, is left alone.
-- KEYS  1 ready ZSET   2 lease ZSET   3 heads ZSET
-- ARGV  id, score, id, score, ...
-- Returns the number of jobs added.
local BASE = 1e13
local added, oldest = 0, {}
for i = 1, #ARGV, 2 do
  if not redis.call('ZSCORE', KEYS[2], ARGV[i]) then
    added = added + redis.call('ZADD', KEYS[1], 'NX', ARGV[i + 1], ARGV[i])
    local score = tonumber(ARGV[i + 1])
    local bucket = math.floor(score / BASE)
    oldest[bucket] = math.min(oldest[bucket] or BASE, score - bucket * BASE)
  end
end
-- of jobs that were there already too: a head that got lost would hide its bucket from claims
for bucket, arrival in pairs(oldest) do
  redis.call('ZADD', KEYS[3], 'LT', string.format('%.0f', arrival), string.format('%.0f', bucket))
end
return added
