#!/usr/bin/perl
# A file system whose file `stuck` is never answered for: whoever looks at it and is killed stays in D state,
# which no signal ends, until this program does. All else in it answers at once: nobody may stumble over it.
#
#   stuck.pl DIRECTORY     serves it there; prints "serving" when it does
#
# Source: the requests of linux/fuse.h, protocol 7.31.
use strict;
use warnings;

my $directory = shift or die "where?";
my ($INIT, $LOOKUP, $GETATTR, $FORGET, $BATCH_FORGET, $INTERRUPT) = (26, 1, 3, 2, 42, 36);
my ($ENOENT, $ENOSYS) = (2, 38);

$^F = 255;    # the descriptor is mount's too
open(my $fuse, '+<', '/dev/fuse') or die "/dev/fuse: $!";
my $fd = fileno $fuse;
system('mount', '-i', '-t', 'fuse', '-o', "fd=$fd,rootmode=40000,user_id=0,group_id=0,allow_other", 'stuck', $directory) == 0
    or die "mount failed";
$| = 1;
print "serving\n";

sub answer {
    my ($unique, $error, $body) = @_;
    syswrite $fuse, pack('L l Q', 16 + length $body, -$error, $unique) . $body;
}

while (sysread $fuse, my $request, 1 << 20) {
    my ($length, $opcode, $unique, $node) = unpack 'L L Q Q', $request;
    if ($opcode == $INIT) {
        answer $unique, 0, pack('L L L L S S L L S S L L7', 7, 31, 0, 0, 1, 1, 4096, 1, 1, 0, 0, (0) x 7);
    } elsif ($opcode == $GETATTR) {
        answer $unique, 0, pack('Q L L Q6 L3 L L L L L L L', 1, 0, 0, 1, (0) x 5, (0) x 3, 040755, 2, 0, 0, 0, 4096, 0);
    } elsif ($opcode == $LOOKUP) {
        my $name = unpack 'Z*', substr $request, 40;
        answer $unique, $ENOENT, '' unless $name eq 'stuck';
    } elsif ($opcode != $FORGET && $opcode != $BATCH_FORGET && $opcode != $INTERRUPT) {
        answer $unique, $ENOSYS, '';
    }
}
