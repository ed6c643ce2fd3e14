#!/bin/sh
# /usr/local/bin/remit, for root where systemd runs Remit: a command with the service's user, root and environment.
exec systemd-run --quiet --collect --wait --pty --pipe --service-type=exec \
    --property=User=remit --property=Group=remit --property=UMask=0077 \
    --property=EnvironmentFile=-/etc/remit/environment --setenv=REMIT_ROOT=/var/lib/remit/root \
    --working-directory=/var/lib/remit /opt/remit/bin/remit "$@"
