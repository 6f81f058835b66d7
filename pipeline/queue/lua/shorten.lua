#!lua
-- Redis' clock was set back, or another server's is behind: leases given before would last until it is
-- as late again. None lasts longer than one lease from now; live owners renew theirs.
-- KEYS  1 lease ZSET
-- ARGV  1 lease, ms   2 how many at most
-- Returns the number shortened.
local time = redis.call('TIME')
local latest = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000) + tonumber(ARGV[1]))
local beyond = redis.call('ZRANGE', KEYS[1], '(' .. latest, '+inf', 'BYSCORE', 'LIMIT', 0, tonumber(ARGV[2]))
for _, id in ipairs(beyond) do redis.call('ZADD', KEYS[1], 'XX', latest, id) end
return #beyond
