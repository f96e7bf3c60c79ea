-- Written by the cluster's set-up. slurmctld's plugin jobcomp/lua runs it for each job that ended: one line of JSON in
-- job_completions.log, from which `./hpc accounting rebuild` writes records that never reached the database.

local file_name = "/var/log/slurm/job_completions.log"
local numbers = {
    "job_id", "submit_time", "start_time", "end_time", "job_state", "user_id", "group_id", "exit_code", "derived_ec",
    "array_job_id", "array_task_id", "het_job_id", "het_job_offset", "time_limit", "priority", "min_cpus",
    "total_nodes",
}
local texts = {
    "user_name", "account", "partition", "qos", "resv_name", "name", "work_dir", "features", "nodes", "tres_alloc_str",
    "tres_req_str", "comment", "admin_comment",
}

-- Users choose names and folders. Any byte but plain ASCII becomes \u00XX, so that no value can end its line.
local function quoted(text)
    local escaped = text:gsub('[%c"\\\127-\255]', function(byte) return string.format("\\u%04x", byte:byte()) end)
    return '"' .. escaped .. '"'
end

local function note(job)
    local parts = {}
    for _, name in ipairs(numbers) do
        if job[name] then table.insert(parts, string.format('"%s":%.0f', name, job[name])) end
    end
    for _, name in ipairs(texts) do
        if job[name] then table.insert(parts, string.format('"%s":', name) .. quoted(job[name])) end
    end
    -- The line break comes first: it also ends an incomplete line of a killed slurmctld or a full disk.
    local line = "\n{" .. table.concat(parts, ",") .. "}"
    local file = assert(io.open(file_name, "a"))
    file:setvbuf("full", #line + 1)
    local written, why = file:write(line)
    local closed, late = file:close()
    assert(written and closed, why or late)
end

function slurm_jobcomp_log_record(job)
    if job.resizing == 1 then return 0 end
    -- Not raised: the plugin leaves each error on Lua's stack (_log_record of jobcomp_lua.c) until the stack is full.
    local done, why = pcall(note, job)
    if not done then slurm.log_error("%s", tostring(why)) end
    return done and 0 or -1
end
