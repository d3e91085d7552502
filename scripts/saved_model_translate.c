/* Translate lines of standard input with a SavedModel and TensorFlow's C API, without Python.
 *
 * The headers and libraries come with the Python package tensorflow, and the operators with
 * tensorflow-text:
 *
 *   TF=$(python -c 'import tensorflow as tf; print(tf.sysconfig.get_lib())')
 *   cc -O2 -o saved_model_translate saved_model_translate.c -I"$TF/include" -L"$TF" \
 *      -Wl,-rpath,"$TF" -l:libtensorflow_cc.so.2 -l:libtensorflow_framework.so.2
 *   ./saved_model_translate SAVED_MODEL \
 *      "$TF/../tensorflow_text/python/ops/_sentencepiece_tokenizer.so" < captions.de
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tensorflow/c/c_api.h"

#define BATCH 32 /* lines per batch */

typedef struct {
  TF_Session *session;
  TF_Output text, translation, score;
} Model;

static void fail(const char *what, const char *why) {
  fprintf(stderr, "error: %s: %s\n", what, why);
  exit(1);
}

static void check(TF_Status *status, const char *what) {
  if (TF_GetCode(status) != TF_OK) fail(what, TF_Message(status));
}

/* The signature `serving_default` is the operation that reads `serving_default_text`. */
static void find_signature(TF_Graph *graph, Model *model, const char *path) {
  TF_Operation *input = TF_GraphOperationByName(graph, "serving_default_text");
  TF_Input reader;
  if (!input) fail(path, "expected a signature 'serving_default' that takes 'text'");
  model->text = (TF_Output){input, 0};
  if (TF_OperationOutputConsumers(model->text, &reader, 1) != 1) fail(path, "expected one operation that reads 'text'");
  for (int i = 0; i < TF_OperationNumOutputs(reader.oper); ++i) {
    TF_Output output = {reader.oper, i};
    if (TF_OperationOutputType(output) == TF_STRING) model->translation = output;
    if (TF_OperationOutputType(output) == TF_FLOAT) model->score = output;
  }
  if (!model->translation.oper || !model->score.oper) fail(path, "expected the outputs 'translation' and 'score'");
}

static Model load(const char *path, TF_Status *status) {
  const char *tags[] = {"serve"};
  TF_SessionOptions *options = TF_NewSessionOptions();
  TF_Graph *graph = TF_NewGraph();
  Model model = {0};
  model.session = TF_LoadSessionFromSavedModel(options, NULL, path, tags, 1, graph, NULL, status);
  check(status, path);
  find_signature(graph, &model, path);
  TF_DeleteSessionOptions(options);
  return model;
}

static void release(void *data, size_t size, void *unused) {
  (void)unused;
  for (size_t i = 0; i < size / sizeof(TF_TString); ++i) TF_StringDealloc((TF_TString *)data + i);
  free(data);
}

static TF_Tensor *string_tensor(char **lines, int count) {
  int64_t shape[] = {count};
  TF_TString *strings = malloc(count * sizeof *strings);
  for (int i = 0; i < count; ++i) {
    TF_StringInit(&strings[i]);
    TF_StringCopy(&strings[i], lines[i], strlen(lines[i]));
  }
  return TF_NewTensor(TF_STRING, shape, 1, strings, count * sizeof *strings, release, NULL);
}

static void translate(Model *model, char **lines, int count, long first, TF_Status *status) {
  TF_Tensor *text = string_tensor(lines, count), *found[2];
  TF_Output outputs[] = {model->translation, model->score};
  TF_SessionRun(model->session, NULL, &model->text, &text, 1, outputs, found, 2, NULL, 0, NULL, status);
  check(status, "translation");
  const TF_TString *translations = TF_TensorData(found[0]);
  const float *scores = TF_TensorData(found[1]);
  for (int i = 0; i < count; ++i) {
    if (isnan(scores[i])) fprintf(stderr, "line %ld: longer than the model reads; split it into sentences\n", first + i);
    fwrite(TF_StringGetDataPointer(&translations[i]), 1, TF_StringGetSize(&translations[i]), stdout);
    putchar('\n');
  }
  fflush(stdout);
  TF_DeleteTensor(text);
  TF_DeleteTensor(found[0]);
  TF_DeleteTensor(found[1]);
}

int main(int argc, char **argv) {
  TF_Status *status = TF_NewStatus();
  char *lines[BATCH] = {0};
  size_t sizes[BATCH] = {0};
  long done = 0;
  int count = 0;
  if (argc != 3) fail("usage", "saved_model_translate SAVED_MODEL OPERATOR_LIBRARY < TEXT");
  TF_LoadLibrary(argv[2], status);
  check(status, argv[2]);
  Model model = load(argv[1], status);
  while (getline(&lines[count], &sizes[count], stdin) >= 0) {
    lines[count][strcspn(lines[count], "\r\n")] = '\0';
    if (++count == BATCH) {
      translate(&model, lines, count, done + 1, status);
      done += count;
      count = 0;
    }
  }
  if (count) translate(&model, lines, count, done + 1, status);
  TF_CloseSession(model.session, status);
  return 0;
}
