#!lua
-- Let one request of a caller through, or say when it may come again: a token bucket.
-- The bucket is one number, the moment it is full again if nobody asks: each request moves that on
-- by the time one token takes to come back, and may not move it further than a whole bucket away.
-- KEYS  1 bucket STRING, expires when it is full again
-- ARGV  1 time one token takes to come back, us, > 0
--       2 tokens of a full bucket, >= 1
-- Returns 0                 let through, and one token is gone
--         us, >= 1          refused, and no token is gone; after so long one request is let through
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local token, whole = tonumber(ARGV[1]), ARGV[1] * ARGV[2]
local full = tonumber(redis.call('GET', KEYS[1]) or now)
-- A clock that was set back, or a smaller bucket than before, locks nobody out for longer.
full = math.min(math.max(full, now), now + whole) + token
if full - now > whole then return math.max(1, math.ceil(full - now - whole)) end
redis.call('SET', KEYS[1], string.format('%.0f', full), 'PX', math.ceil((full - now) / 1000) + 1)
return 0
