/* Wine has had this library since version 9 or so. The standard library of Rust takes its random numbers from it, so
   without it no program starts; an older Wine loads this one, which lies beside the program. */
#include <windows.h>

BOOLEAN NTAPI SystemFunction036(PVOID, ULONG);

__declspec(dllexport) BOOL WINAPI ProcessPrng(PBYTE data, SIZE_T length)
{
    return SystemFunction036(data, (ULONG)length);
}
