// HIPRTC's functions that rlx calls: code is the source behind a word that the fake driver knows, for one architecture.
#include <stdlib.h>
#include <string.h>

struct Program {
  char* source;
  const char* log;
};

enum Result { SUCCESS = 0, INVALID_OPTION = 5, COMPILATION = 6 };

static const char WORD[] = "fake cubin\n";

#define API extern "C" __attribute__((visibility("default")))

API const char* hiprtcGetErrorString(int result) {
  return result == COMPILATION ? "HIPRTC_ERROR_COMPILATION" : "HIPRTC_ERROR_INVALID_OPTION";
}

API int hiprtcVersion(int* major, int* minor) {
  *major = 7;
  *minor = 0;
  return SUCCESS;
}

API int hiprtcCreateProgram(Program** made, const char* source, const char* name, int headers, const char**, const char**) {
  if (headers != 0 || strcmp(name, "rlx.hip") != 0) { return INVALID_OPTION; }
  *made = static_cast<Program*>(malloc(sizeof(Program)));
  (*made)->source = strdup(source);
  (*made)->log = "";
  return SUCCESS;
}

API int hiprtcCompileProgram(Program* program, int count, const char** options) {
  bool is_known = false, is_contracted = true;
  for (int i = 0; i < count; i++) {
    is_known |= strcmp(options[i], "--gpu-architecture=gfx942:sramecc+:xnack-") == 0;
    is_contracted &= strcmp(options[i], "-ffp-contract=off") != 0;
  }
  program->log = !is_known ? "error: unknown target CPU" : is_contracted ? "error: contracted" : "";
  if (strstr(program->source, "nonsense") != nullptr) { program->log = "rlx.hip:1:1: error: unknown type name 'nonsense'"; }
  return program->log[0] != 0 ? COMPILATION : SUCCESS;
}

API int hiprtcGetProgramLogSize(Program* program, size_t* size) {
  *size = strlen(program->log) + 1;
  return SUCCESS;
}

API int hiprtcGetProgramLog(Program* program, char* log) {
  strcpy(log, program->log);
  return SUCCESS;
}

API int hiprtcGetCodeSize(Program* program, size_t* size) {
  *size = strlen(WORD) + strlen(program->source);
  return SUCCESS;
}

API int hiprtcGetCode(Program* program, char* code) {
  memcpy(code, WORD, strlen(WORD));
  memcpy(code + strlen(WORD), program->source, strlen(program->source));
  return SUCCESS;
}

API int hiprtcDestroyProgram(Program** program) {
  free((*program)->source);
  free(*program);
  *program = nullptr;
  return SUCCESS;
}
