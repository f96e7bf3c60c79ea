#!/bin/sh
# MailProg of slurmctld, which calls it as: hpc-mail -s SUBJECT ADDRESS. Subject and address have what a user gave as the
# job's name and as --mail-user (slurmctld 24.11.5). GNU Mailutils 3.15 runs an address like |COMMAND, and writes into one
# like /FILE, also after --.
export LC_ALL=C
case ,$3 in
    *[!A-Za-z0-9@._+,-]* | *,[!A-Za-z0-9]* | *,)
        logger -t hpc-mail -- "no mail to $3: an address begins with a letter or digit and has no others than @ . _ + -"
        exit 1
        ;;
esac
PATH=/usr/local/bin:/usr/bin:/bin
why=
# Why a job was requeued is in its AdminComment before it is: the user reads it in the mail about it.
case $SLURM_JOB_MAIL_TYPE in
    Requeue*) why=$(timeout 5 squeue --noheader --jobs="$SLURM_JOB_ID" --Format=admin_comment:400 2>/dev/null) ;;
esac
case $why in "hpc: "*) ;; *) why= ;; esac
printf %s "${why:+$why
}" | tr -d '\000-\011\013-\037\177' | /usr/bin/mail -s "$(printf %s "$2" | tr -d '\000-\037\177')" -- "$3"
