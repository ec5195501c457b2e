/* C ABI of rust/textbridge: tokenizers and chat templates.
 *
 * Handles are immutable once made and may be used from many threads at once; each is given back
 * with its own free function. Slices are borrowed for the call and need not be UTF-8 (what must be
 * is checked or replaced). Buffers and numbers are owned by the caller once filled and given back
 * with their free functions. A function that returns a status fills its outputs only on TB_OK and
 * `error` (a sentence, UTF-8) only otherwise. No panic crosses this border. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tb_slice {
  const uint8_t* data;
  size_t size;
} tb_slice;

typedef struct tb_buffer {
  uint8_t* data;
  size_t size;
  size_t capacity;
} tb_buffer;

typedef struct tb_numbers {
  uint32_t* data;
  size_t size;
  size_t capacity;
} tb_numbers;

void tb_buffer_free(tb_buffer buffer);
void tb_numbers_free(tb_numbers numbers);

typedef enum tb_status {
  TB_OK = 0,
  TB_INPUT = 1,  /* the input is at fault */
  TB_RAISED = 2, /* the template refused by raise_exception */
  TB_PANIC = 3,  /* a panic inside a crate */
} tb_status;

/* ---- tokenizers ---- */

typedef struct tb_tokenizer tb_tokenizer;

/* Every token by id: token i is bytes[byte_offsets[i], byte_offsets[i + 1]) as text, and
 * pieces[piece_offsets[i], …) as the vocabulary spells it; special[i] is 1 for control tokens. */
typedef struct tb_vocabulary {
  tb_buffer bytes;
  tb_numbers byte_offsets;
  tb_buffer pieces;
  tb_numbers piece_offsets;
  tb_buffer special;
  uint8_t strips_leading_space;
} tb_vocabulary;

/* `json`: the content of a tokenizer.json. */
int32_t tb_tokenizer_from_json(tb_slice json, tb_tokenizer** out, tb_buffer* error);
/* `model`: lines "base64 rank", as tiktoken.model has them; `pattern`: the regular expression that
 * takes text apart; `added`: a JSON array of added tokens as tokenizer.json has them. */
int32_t tb_tokenizer_from_tiktoken(tb_slice model, tb_slice pattern, tb_slice added,
                                   tb_tokenizer** out, tb_buffer* error);
void tb_tokenizer_free(tb_tokenizer* tokenizer);
/* `honour`: names of control tokens become control tokens, unless marked with U+FDD1. */
int32_t tb_tokenizer_encode(const tb_tokenizer* tokenizer, tb_slice text, uint8_t honour,
                            uint8_t add_special, tb_numbers* out, tb_buffer* error);
int32_t tb_tokenizer_vocabulary(const tb_tokenizer* tokenizer, tb_vocabulary* out,
                                tb_buffer* error);
/* The id of a token as the vocabulary spells it, or -1. */
int64_t tb_tokenizer_find(const tb_tokenizer* tokenizer, tb_slice piece);

/* ---- chat templates ---- */

typedef struct tb_template tb_template;

/* What one rendering sees. `messages` and `tools` are JSON arrays, `extra` a JSON object; `tools`
 * and `extra` may be empty. `now` is what strftime_now sees, in seconds since 1970, UTC. */
typedef struct tb_chat {
  tb_slice messages;
  tb_slice tools;
  tb_slice extra;
  int64_t now;
  uint8_t add_generation_prompt;
} tb_chat;

/* `constants`: a JSON object of trusted variables (bos_token …). */
int32_t tb_template_parse(tb_slice source, tb_slice constants, tb_template** out, tb_buffer* error);
void tb_template_free(tb_template* chat_template);
/* `guard`: the tokenizer whose control tokens' names are marked in the input, or NULL. */
int32_t tb_template_render(const tb_template* chat_template, const tb_tokenizer* guard,
                           const tb_chat* chat, tb_buffer* out, tb_buffer* error);

#ifdef __cplusplus
}
#endif
