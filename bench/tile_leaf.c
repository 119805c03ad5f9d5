// Preloaded into PyTorch where a hypervisor leaves matrix units (AMX) on but answers CPUID's leaves 0x1d and 0x1e,
// which say how large they are, with zeros: oneDNN then prepares them wrongly and dies of an illegal instruction. Here
// CPUID traps (arch_prctl(2), ARCH_SET_CPUID) and is answered as the CPU does, those leaves as Intel's manual has them
// for every CPU with AMX so far (volume 1, section 18.2). Where CPUID cannot trap nothing changes.
#include <cpuid.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

enum { ARCH_SET_CPUID = 0x1012, OPCODE_BYTES = 2, TILE = 0x1d, PRODUCT = 0x1e };

static long cpuid_traps(int yes) {
    return syscall(SYS_arch_prctl, ARCH_SET_CPUID, !yes);
}

static void answer(int signal_number, siginfo_t *info, void *context) {
    greg_t *r = ((ucontext_t *)context)->uc_mcontext.gregs;
    const unsigned char *opcode = (const unsigned char *)r[REG_RIP];
    (void)info;
    if (opcode[0] != 0x0f || opcode[1] != 0xa2) {
        signal(signal_number, SIG_DFL);
        return;
    }
    const unsigned leaf = (unsigned)r[REG_RAX], part = (unsigned)r[REG_RCX];
    unsigned a, b, c, d;
    cpuid_traps(0);
    __cpuid_count(leaf, part, a, b, c, d);
    cpuid_traps(1);
    if (leaf == TILE && part == 0)
        a = 1; // palettes
    if (leaf == TILE && part == 1)
        a = 1024 << 16 | 8192, b = 8 << 16 | 64, c = 16; // bytes of a register and of all; registers, bytes, rows
    if (leaf == PRODUCT && part == 0)
        b = 64 << 8 | 16;
    r[REG_RAX] = a, r[REG_RBX] = b, r[REG_RCX] = c, r[REG_RDX] = d;
    r[REG_RIP] += OPCODE_BYTES;
}

// Whether this machine is such a one.
int tile_leaf_hidden(void) {
    unsigned a, b, c, d;
    __cpuid_count(TILE, 0, a, b, c, d);
    return a == 0;
}

// Programs that PyTorch starts, a compiler say, inherit the preload but do not survive it: only Python traps, when
// asked.
__attribute__((constructor)) static void begin(void) {
    char program[256] = "";
    if (!getenv("TILE_LEAF") || readlink("/proc/self/exe", program, sizeof program - 1) < 0)
        return;
    struct sigaction action = {.sa_sigaction = answer, .sa_flags = SA_SIGINFO | SA_NODEFER};
    if (strstr(program, "python") && tile_leaf_hidden() && sigaction(SIGSEGV, &action, NULL) == 0)
        cpuid_traps(1);
}
