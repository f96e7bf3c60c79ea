-- Written by the cluster's set-up. job_submit.lua, which slurmctld's plugin job_submit/lua runs, begins with it.
--
-- slurmctld writes script and environment of a batch job to its state folder before it answers sbatch, and the job
-- itself within five seconds (state_save.c). The job's options are added to its environment here, so that a job that a
-- killed slurmctld lost can be submitted again (jobs/lost_submissions.py).

local SITE = "/etc/slurm/job_submit_site.lua"
local KEPT = "/var/spool/slurmctld/hpc-kept/"
local RECORD = "HPC_SUBMISSION"
local NO_VAL, NO_VAL16 = 4294967294, 65534 -- slurm.h

-- Fields of a submission that the plugin can read and set (_get_job_req_field, _set_job_req_field), by their types. A
-- field that a release does not have is nil.
local NUMBERS = {
    "begin_time", "bitflags", "contiguous", "core_spec", "cores_per_socket", "cpu_freq_gov", "cpu_freq_max",
    "cpu_freq_min", "cpus_per_task", "delay_boot", "end_time", "mail_type", "max_cpus", "max_nodes", "min_cpus",
    "min_mem_per_cpu", "min_mem_per_node", "min_nodes", "nice", "ntasks_per_node", "ntasks_per_socket",
    "ntasks_per_tres", "num_tasks", "pn_min_cpus", "pn_min_tmp_disk", "reboot", "req_switch", "requeue",
    "segment_size", "shared", "sockets_per_node", "thread_spec", "threads_per_core", "time_limit", "time_min",
    "wait4switch",
}
local TEXTS = {
    "account", "acctg_freq", "admin_comment", "array_inx", "batch_features", "burst_buffer", "comment", "container",
    "cpus_per_tres", "dependency", "exc_nodes", "extra", "features", "licenses", "mail_user", "mcs_label",
    "mem_per_tres", "name", "partition", "prefer", "qos", "req_nodes", "reservation", "std_err", "std_in", "std_out",
    "tres_bind", "tres_freq", "tres_per_job", "tres_per_node", "tres_per_socket", "tres_per_task", "wckey", "work_dir",
}

local function escaped(text)
    return (text:gsub("[^%w_.,:/-]", function(byte) return string.format("%%%02X", byte:byte()) end))
end

local function unescaped(text)
    return (text:gsub("%%(%x%x)", function(code) return string.char(tonumber(code, 16)) end))
end

-- Adds the record to the job's environment. It replaces a record that the user's own environment has.
local function note(job)
    local file = assert(io.open("/proc/sys/kernel/random/uuid"))
    local parts = { "id=" .. file:read() }
    file:close()
    local function add(name, value) table.insert(parts, name .. "=" .. escaped(value)) end
    add("uid", string.format("%.0f", job.user_id))
    add("gid", string.format("%.0f", job.group_id))
    if job.cron_job then add("kind", "scrontab") end
    if job.het_job_offset and job.het_job_offset ~= NO_VAL then add("kind", "heterogeneous") end
    if job.priority == 0 then add("priority", "0") end -- submitted with --hold
    for _, name in ipairs(NUMBERS) do
        local value = job[name]
        if value and value ~= NO_VAL and value ~= NO_VAL16 then add(name, string.format("%.0f", value)) end
    end
    for _, name in ipairs(TEXTS) do
        if job[name] and job[name] ~= "" then add(name, job[name]) end
    end
    for _, value in ipairs(job.argv or {}) do add("argument", value) end -- at 0 is the script's name
    job.environment[RECORD] = table.concat(parts, "&")
end

-- Gives a submission by lost_submissions.py, whose comment has the name of a kept job, the fields of that job. Returns
-- false for any other submission. Raises an error if the user has no kept job with this name.
local function restore(job, uid)
    local name, numbers = (job.comment or ""):match("^hpc%-again:(job%.%d+%.%d+%.%d+):(%S*)$")
    if not name then return false end
    local file = assert(io.open(KEPT .. name .. "/environment", "rb"))
    local text = file:read("*a"):sub(5) -- after the number of variables
    file:close()
    local values, record = {}, {}
    for entry in text:gmatch("[^%z]+") do
        local key, value = entry:match("^([^=]+)=(.*)$")
        if key then values[key] = value end
    end
    for key, value in (values[RECORD] or ""):gmatch("([%w_]+)=([^&]*)") do record[key] = unescaped(value) end
    assert(tonumber(record.uid) == uid, "another user's job")
    for key, value in pairs(values) do
        if job.environment[key] ~= value then job.environment[key] = value end
    end
    if record.priority then job.priority = tonumber(record.priority) end
    for _, key in ipairs(NUMBERS) do
        local value = tonumber(record[key])
        if value and job[key] ~= value then job[key] = value end
    end
    for _, key in ipairs(TEXTS) do
        local value = record[key] or ""
        if (job[key] or "") ~= value then job[key] = value end
    end
    if record.dependency then -- of jobs that have another number now
        local now = {}
        for old, new in numbers:gmatch("(%d+)=(%d+)") do now[old] = new end
        job.dependency = record.dependency:gsub("%d+", now)
    end
    local why = "hpc: slurmctld was killed and lost job " .. name:match("%d+") .. ", submitted again"
    job.admin_comment = record.admin_comment and record.admin_comment .. "; " .. why or why
    return true
end

slurm_job_submit, slurm_job_modify = nil, nil
local site = io.open(SITE)
if site then
    site:close()
    dofile(SITE)
end
local site_submit, site_modify = slurm_job_submit, slurm_job_modify

function slurm_job_submit(job, partitions, uid)
    local done, again = pcall(restore, job, uid)
    if not done then
        slurm.log_user("%s", tostring(again))
        return slurm.ERROR
    end
    if again then return slurm.SUCCESS end
    if site_submit then
        local ran, answer = pcall(site_submit, job, partitions, uid)
        if not ran then slurm.log_error("%s", tostring(answer)) end -- the plugin accepts the job then
        if ran and type(answer) == "number" and answer ~= slurm.SUCCESS then return answer end
    end
    if job.script then
        -- A submission is not refused for an error here. If the job is lost, it is named, but not submitted again.
        local noted, why = pcall(note, job)
        if not noted then slurm.log_error("%s", tostring(why)) end
    end
    return slurm.SUCCESS
end

function slurm_job_modify(job, record, partitions, uid)
    if site_modify then return site_modify(job, record, partitions, uid) end
    return slurm.SUCCESS
end
