#!lua
-- Take the jobs that go first and lease them to the caller: the rule of scheduling/dispatch.py.
-- Only the heads of size buckets are compared: inside a bucket the oldest leads under any policy.
-- KEYS  1 ready ZSET   2 lease ZSET   3 owner HASH   4 epoch STRING   5 policy STRING
--       6 answer STRING of the calling worker
-- ARGV  1 token of this claim, also its nonce: the same token again gets the same answer
--       2 windows wanted, >= 1; a job counts for as many as its bucket usually has
--       3 jobs at most, >= 1
--       4 lease, ms   5 Postgres time minus Redis TIME, ms
--       6 the policy the table (12) was made from
--       7 floor: bucket, or -1 for none   8 floor: arrival, ms; only jobs that outrank it are taken,
--         promoted ones excepted
--       9 promotions: how many jobs may be taken by age though another is first by rank; a promoted
--         job counts for one window
--       10 promoted: only who arrived before this moment, ms   11 and has waited this long, ms
--       12 table: for each bucket from 0 the doubles u, v, windows, little-endian, 8 bytes each
-- Returns {'policy', name}                    the table is out of date; nothing was taken
--         {'jobs', now ms, epoch or '', id, score, id, score, ...}   now is Postgres time
local BASE, ZEROS = 1e13, '0000000000000'
local call, unpack = redis.call, struct.unpack
local seen = call('GET', KEYS[6])
if seen then
  local answer = cjson.decode(seen)
  if answer[1] == ARGV[1] then return answer[2] end
end
local policy = call('GET', KEYS[5])
if policy and policy ~= ARGV[6] then return { 'policy', policy } end

local time = call('TIME')
local redis_now = time[1] * 1000 + math.floor(time[2] / 1000)
local now = redis_now + tonumber(ARGV[5])
local function text(number) return string.format('%.0f', number) end

-- Read as the very doubles Python made: no digits are written or parsed, and only for buckets met.
local function rank_of(bucket, arrival)
  local u, v = unpack('<dd', ARGV[12], bucket * 24 + 1)
  return u * math.max(0, now - arrival) + v
end

-- The head of each bucket that holds somebody. Columns, not records: a claim makes no garbage but
-- what Redis answers, and that is half of its time.
local buckets, id, score, arrival, rank = {}, {}, {}, {}, {}
local function read_head(from)
  local found = call('ZRANGE', KEYS[1], from, '+inf', 'BYSCORE', 'LIMIT', 0, 1, 'WITHSCORES')
  if not found[1] then return nil end
  local at = tonumber(found[2])
  local bucket = math.floor(at / BASE)
  id[bucket], score[bucket], arrival[bucket] = found[1], at, at - bucket * BASE
  rank[bucket] = rank_of(bucket, arrival[bucket])
  return bucket
end
local bucket = read_head('-inf')
while bucket do
  buckets[#buckets + 1] = bucket
  bucket = read_head((bucket + 1) .. ZEROS)
end

-- Both searches go through buckets from the smallest and look for strictly better, so a tie stays
-- with the smaller one.
local function first_by_rank()
  local best, highest
  for i = 1, #buckets do
    local found = rank[buckets[i]]
    if found and (not best or found > highest) then best, highest = buckets[i], found end
  end
  return best
end
local overdue = math.min(now - tonumber(ARGV[11]), tonumber(ARGV[10]) - 1)
local function oldest_overdue()
  local best, oldest
  for i = 1, #buckets do
    local came = arrival[buckets[i]]
    if came and came <= overdue and (not best or came < oldest) then best, oldest = buckets[i], came end
  end
  return best
end

local floor_bucket, floor_arrival = tonumber(ARGV[7]), tonumber(ARGV[8])
local floor_rank = floor_bucket >= 0 and rank_of(floor_bucket, floor_arrival) or nil
local function outranks_floor(b)
  if not floor_rank then return true end
  if rank[b] ~= floor_rank then return rank[b] > floor_rank end
  if b ~= floor_bucket then return b < floor_bucket end
  return arrival[b] < floor_arrival
end

local jobs = { 'jobs', text(now), call('GET', KEYS[4]) or '' }
local function take(b)
  call('ZREM', KEYS[1], id[b])
  call('ZADD', KEYS[2], text(redis_now + tonumber(ARGV[4])), id[b])
  call('HSET', KEYS[3], id[b], ARGV[1])
  jobs[#jobs + 1] = id[b]
  jobs[#jobs + 1] = text(score[b])
  id[b], score[b], arrival[b], rank[b] = nil, nil, nil, nil
  read_head(b .. ZEROS)  -- the next of this bucket; where it is empty now, a head known already
end

local wanted, most, promotions = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[9])
while wanted > 0 and most > 0 do
  local best = first_by_rank()
  if best and not outranks_floor(best) then best = nil end
  local late = promotions > 0 and oldest_overdue()
  if late and late ~= best then
    promotions, wanted = promotions - 1, wanted - 1
    take(late)
  elseif best then
    wanted = wanted - unpack('<d', ARGV[12], best * 24 + 17)
    take(best)
  else
    break
  end
  most = most - 1
end
if #jobs > 3 then call('SET', KEYS[6], cjson.encode({ ARGV[1], jobs }), 'PX', 60000) end
return jobs
