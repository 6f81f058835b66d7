#!lua
-- Take the jobs that go first and lease them to the caller: the rule of scheduling/dispatch.py.
-- Only the heads of size buckets are compared: inside a bucket the oldest leads under any policy.
-- KEYS  1 ready ZSET   2 lease ZSET   3 owner HASH   4 epoch STRING   5 policy STRING
--       6 answer STRING of the calling worker   7 heads ZSET
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
local call, read = redis.call, struct.unpack
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

-- For each bucket the arrival of its head, or an earlier moment: then its rank is a bound too, never
-- below what it is. Whoever leads is looked at before it is taken, and stands further back if it was
-- bounded too well. So most buckets are never looked into.
local READY, HEADS, TABLE = KEYS[1], KEYS[7], ARGV[12]
local buckets, arrival, rank, id = {}, {}, {}, {}
-- The doubles are the very ones Python made: no digits are written or parsed.
local function rank_of(bucket, since)
  local u, v = read('<dd', TABLE, bucket * 24 + 1)
  local wait = now - since
  return (wait > 0 and u * wait or 0) + v
end
local bounds = call('ZRANGE', HEADS, '0', '-1', 'WITHSCORES')
for i = 1, #bounds, 2 do
  local bucket, since = tonumber(bounds[i]), tonumber(bounds[i + 1])
  if bucket and bucket >= 0 and bucket < #TABLE / 24 then
    buckets[#buckets + 1] = bucket
    arrival[bucket], rank[bucket] = since, rank_of(bucket, since)
  else
    -- no bucket: another version's or somebody's hand. Left in, it would end every claim to come.
    call('ZREM', HEADS, bounds[i])
  end
end

-- What is done to the sets is written at the end, once for all jobs taken: a call of Redis costs more
-- than all comparing. Until then a bucket's first jobs are those taken, and looking skips them.
local taken, bounded, emptied = {}, {}, {}

-- Look into a bucket: afterwards id, arrival and rank are its head's, or nil when nobody is in it.
local function look(bucket)
  local found = call('ZRANGE', READY, bucket .. ZEROS, '(' .. (bucket + 1) .. ZEROS,
    'BYSCORE', 'LIMIT', taken[bucket] or 0, '1', 'WITHSCORES')
  if not found[1] then
    emptied[#emptied + 1] = bucket
    bounded[bucket] = nil
    id[bucket], arrival[bucket], rank[bucket] = nil, nil, nil
    return
  end
  local since = tonumber(found[2]) - bucket * BASE
  if since ~= arrival[bucket] then bounded[bucket] = since end
  id[bucket], arrival[bucket], rank[bucket] = found[1], since, rank_of(bucket, since)
end

-- Ties go to the smaller bucket.
local function first_by_rank()
  while true do
    local best, highest
    for i = 1, #buckets do
      local b = buckets[i]
      local found = rank[b]
      if found and (not best or found > highest or found == highest and b < best) then
        best, highest = b, found
      end
    end
    if not best or id[best] then return best end
    look(best)
  end
end
local overdue = math.min(now - tonumber(ARGV[11]), tonumber(ARGV[10]) - 1)
local function oldest_overdue()
  while true do
    local best, oldest
    for i = 1, #buckets do
      local b = buckets[i]
      local came = arrival[b]
      if came and came <= overdue and (not best or came < oldest or came == oldest and b < best) then
        best, oldest = b, came
      end
    end
    if not best or id[best] then return best end
    look(best)
  end
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
local lease_end = text(redis_now + tonumber(ARGV[4]))
local ids, leases, owners = {}, {}, {}
local function take(b)
  local n = #ids
  ids[n + 1] = id[b]
  leases[2 * n + 1], leases[2 * n + 2] = lease_end, id[b]
  owners[2 * n + 1], owners[2 * n + 2] = id[b], ARGV[1]
  jobs[#jobs + 1] = id[b]
  jobs[#jobs + 1] = text(b * BASE + arrival[b])
  taken[b] = (taken[b] or 0) + 1
  look(b)
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
    wanted = wanted - read('<d', TABLE, best * 24 + 17)
    take(best)
  else
    break
  end
  most = most - 1
end

local heads = {}
for bucket, since in pairs(bounded) do
  heads[#heads + 1] = text(since)
  heads[#heads + 1] = bucket
end
if heads[1] then call('ZADD', HEADS, unpack(heads)) end
if emptied[1] then call('ZREM', HEADS, unpack(emptied)) end
if not ids[1] then return jobs end
call('ZREM', READY, unpack(ids))
call('ZADD', KEYS[2], unpack(leases))
call('HSET', KEYS[3], unpack(owners))
call('SET', KEYS[6], cjson.encode({ ARGV[1], jobs }), 'PX', 60000)
return jobs
