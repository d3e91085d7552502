// Hides instruction sets from a program, with LD_PRELOAD. Linux on x86-64, where the processor can trap CPUID (arch_prctl(2)).
// HIDE=vnni hides VNNI and AMX; HIDE=avx512 also hides AVX-512.
#define _GNU_SOURCE
#include <cpuid.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

enum { SET_CPUID = 0x1012, BIT_VNNI = 1 << 11, TWO_BYTES = 2 };

static int hides_avx512;

static void hide(unsigned leaf, unsigned subleaf, unsigned *ebx, unsigned *eax, unsigned *ecx, unsigned *edx) {
  if (leaf == 7 && subleaf == 0) {
    *ecx &= ~(unsigned)BIT_VNNI;
    *edx &= ~(1u << 22 | 1u << 24 | 1u << 25);  // AMX
    if (hides_avx512) {
      *ebx &= ~(1u << 16 | 1u << 17 | 1u << 21 | 1u << 26 | 1u << 27 | 1u << 28 | 1u << 30 | 1u << 31);
      *ecx &= ~(1u << 1 | 1u << 6 | 1u << 12 | 1u << 14);
      *edx &= ~(1u << 2 | 1u << 3 | 1u << 8 | 1u << 23);
    }
  } else if (leaf == 7 && subleaf == 1) {
    *eax &= ~(1u << 4 | 1u << 5 | 1u << 21);               // AVX-VNNI, bfloat16, AMX
    *edx &= ~(1u << 4 | 1u << 5 | 1u << 10 | 1u << 19);  // AVX-VNNI-INT8 and -INT16, AVX10
  }
}

static void answer(int number, siginfo_t *information, void *context) {
  greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
  const unsigned char *code = (const unsigned char *)registers[REG_RIP];
  if (information->si_code != SI_KERNEL || code[0] != 0x0f || code[1] != 0xa2) {  // not CPUID: a real fault
    signal(number, SIG_DFL);
    return;
  }
  unsigned leaf = registers[REG_RAX], subleaf = registers[REG_RCX], eax, ebx, ecx, edx;
  syscall(SYS_arch_prctl, SET_CPUID, 1);
  __cpuid_count(leaf, subleaf, eax, ebx, ecx, edx);
  syscall(SYS_arch_prctl, SET_CPUID, 0);
  hide(leaf, subleaf, &ebx, &eax, &ecx, &edx);
  registers[REG_RAX] = eax, registers[REG_RBX] = ebx, registers[REG_RCX] = ecx, registers[REG_RDX] = edx;
  registers[REG_RIP] += TWO_BYTES;
}

__attribute__((constructor)) static void start(void) {
  const char *hidden = getenv("HIDE");
  if (!hidden) return;
  hides_avx512 = !strcmp(hidden, "avx512");
  struct sigaction action = {.sa_flags = SA_SIGINFO | SA_NODEFER, .sa_sigaction = answer};
  if (sigaction(SIGSEGV, &action, NULL) || syscall(SYS_arch_prctl, SET_CPUID, 0)) _exit(99);
}
