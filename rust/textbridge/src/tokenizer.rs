//! One vocabulary, two ways in: with control tokens' names as text, and with them honoured except
//! where marked. Both share the model's tables.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Deserialize;
use tokenizers::models::TrainerWrapper;
use tokenizers::models::bpe::BpeTrainer;
use tokenizers::models::unigram::Unigram;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::tokenizer::{
    AddedToken, AddedVocabulary, DecoderWrapper, Model, ModelWrapper, NormalizedString, Normalizer,
    NormalizerWrapper, PostProcessorWrapper, PreTokenizerWrapper, SplitDelimiterBehavior, Token,
    TokenizerImpl,
};

use crate::ffi::{Buffer, Failure, Numbers, Outcome, Slice, discard, enter};
use crate::guard::{Guard, MARK};
use crate::pieces::{Pieces, piece_table};
use crate::ranks::RankBpe;

type Library<T> = tokenizers::tokenizer::Result<T>;

/// Merges by list (or Unigram, WordPiece …) in the library, or by rank.
enum Tables {
    Library(ModelWrapper),
    Ranks(RankBpe),
}

/// The model's tables, shared by the two encoders.
#[derive(Clone)]
struct SharedModel(Arc<Tables>);

impl Model for SharedModel {
    type Trainer = TrainerWrapper;

    fn tokenize(&self, sequence: &str) -> Library<Vec<Token>> {
        match &*self.0 {
            Tables::Library(model) => model.tokenize(sequence),
            Tables::Ranks(ranks) => {
                let mut from = 0;
                let tokens = ranks.encode(sequence.as_bytes()).into_iter().map(|(id, to)| {
                    let token = Token::new(id, String::new(), (from, to));
                    from = to;
                    token
                });
                Ok(tokens.collect())
            }
        }
    }
    fn token_to_id(&self, token: &str) -> Option<u32> {
        match &*self.0 {
            Tables::Library(model) => model.token_to_id(token),
            Tables::Ranks(ranks) => ranks.id(token),
        }
    }
    fn id_to_token(&self, id: u32) -> Option<String> {
        match &*self.0 {
            Tables::Library(model) => model.id_to_token(id),
            Tables::Ranks(ranks) => ranks.token(id),
        }
    }
    fn get_vocab(&self) -> HashMap<String, u32> {
        match &*self.0 {
            Tables::Library(model) => model.get_vocab(),
            Tables::Ranks(ranks) => ranks.vocabulary(),
        }
    }
    fn get_vocab_size(&self) -> usize {
        match &*self.0 {
            Tables::Library(model) => model.get_vocab_size(),
            Tables::Ranks(ranks) => ranks.size(),
        }
    }
    fn save(&self, _: &Path, _: Option<&str>) -> Library<Vec<PathBuf>> {
        Err("tokenizers are read, not written".into())
    }
    fn get_trainer(&self) -> TrainerWrapper {
        TrainerWrapper::from(BpeTrainer::default())
    }
}

/// The file's normalizer, after removing marks: names have been searched by then, words not yet.
#[derive(Clone)]
struct MarkRemover {
    remove: bool,
    inner: Option<NormalizerWrapper>,
}

impl Normalizer for MarkRemover {
    fn normalize(&self, normalized: &mut NormalizedString) -> Library<()> {
        if self.remove && normalized.get().contains(MARK) {
            normalized.filter(|c| c != MARK);
        }
        match &self.inner {
            Some(inner) => inner.normalize(normalized),
            None => Ok(()),
        }
    }
}

type Encoder = TokenizerImpl<
    SharedModel,
    MarkRemover,
    PreTokenizerWrapper,
    PostProcessorWrapper,
    DecoderWrapper,
>;

pub struct Tokenizer {
    /// Names of control tokens are text.
    text: Encoder,
    /// Names of control tokens are control tokens, unless marked.
    honouring: Encoder,
    pub guard: Guard,
}

/// Every token of the vocabulary by id, as C++ keeps it.
#[repr(C)]
pub struct Vocabulary {
    bytes: Buffer,
    byte_offsets: Numbers,
    pieces: Buffer,
    piece_offsets: Numbers,
    special: Buffer,
    strips_leading_space: u8,
}

/// A Unigram model finds its pieces in any text, control tokens' included, and the converters give
/// those the best score of all. They come in through the added vocabulary alone, so their score is
/// put out of reach.
fn hide_special_pieces(model: ModelWrapper, special: &[&str]) -> Library<ModelWrapper> {
    let ModelWrapper::Unigram(unigram) = model else { return Ok(model) };
    let vocabulary = unigram
        .iter()
        .map(|(piece, score)| {
            let hidden = special.contains(&piece.as_str());
            (piece.clone(), if hidden { -1e6 } else { *score })
        })
        .collect();
    let unk = unigram_unk_id(&unigram)?;
    Ok(ModelWrapper::Unigram(Unigram::from(vocabulary, unk, unigram.byte_fallback())?))
}

/// The crate keeps the field to itself; its serialised form shows it.
fn unigram_unk_id(unigram: &Unigram) -> Library<Option<usize>> {
    let shown = serde_json::to_value(unigram)?;
    Ok(shown.get("unk_id").and_then(|id| id.as_u64()).map(|id| id as usize))
}

/// An entry of "added_tokens".
#[derive(Deserialize)]
struct NumberedToken {
    id: u32,
    #[serde(flatten)]
    token: AddedToken,
}

/// A tokenizer.json, read part by part: the library's own reader keeps the parts to itself and
/// renumbers added tokens without a word when it arrives at other ids than the file's.
#[derive(Deserialize)]
struct File {
    version: String,
    #[serde(default)]
    added_tokens: Vec<NumberedToken>,
    normalizer: Option<NormalizerWrapper>,
    pre_tokenizer: Option<PreTokenizerWrapper>,
    post_processor: Option<PostProcessorWrapper>,
    decoder: Option<DecoderWrapper>,
    model: ModelWrapper,
}

fn from_json(json: &[u8]) -> Outcome<Tokenizer> {
    let mut file: File = serde_json::from_slice(json).map_err(Failure::input)?;
    if file.version != "1.0" {
        return Err(Failure::input(format!("unknown version '{}'", file.version)));
    }
    let special: Vec<&str> = file
        .added_tokens
        .iter()
        .filter(|added| added.token.special)
        .map(|added| added.token.content.as_str())
        .collect();
    file.model = hide_special_pieces(file.model, &special).map_err(Failure::input)?;
    assemble(Parts {
        tables: Tables::Library(file.model),
        added: file.added_tokens,
        normalizer: file.normalizer,
        pre_tokenizer: file.pre_tokenizer,
        post_processor: file.post_processor,
        decoder: file.decoder,
    })
}

fn from_tiktoken(model: &[u8], pattern: &[u8], added: &[u8]) -> Outcome<Tokenizer> {
    let text = |bytes| std::str::from_utf8(bytes).map_err(Failure::input);
    let ranks = RankBpe::parse(text(model)?).map_err(Failure::input)?;
    let pattern = SplitPattern::Regex(text(pattern)?.to_string());
    let split = Split::new(pattern, SplitDelimiterBehavior::Isolated, false);
    assemble(Parts {
        tables: Tables::Ranks(ranks),
        added: serde_json::from_slice(added).map_err(Failure::input)?,
        normalizer: None,
        pre_tokenizer: Some(split.map_err(Failure::input)?.into()),
        post_processor: None,
        decoder: Some(ByteLevel::default().into()),
    })
}

struct Parts {
    tables: Tables,
    added: Vec<NumberedToken>,
    normalizer: Option<NormalizerWrapper>,
    pre_tokenizer: Option<PreTokenizerWrapper>,
    post_processor: Option<PostProcessorWrapper>,
    decoder: Option<DecoderWrapper>,
}

fn assemble(mut parts: Parts) -> Outcome<Tokenizer> {
    let model = SharedModel(Arc::new(parts.tables));
    let normalizer = MarkRemover { remove: false, inner: parts.normalizer };
    parts.added.sort_by_key(|added| added.id);
    let mut vocabulary = AddedVocabulary::new();
    let tokens = parts.added.iter().map(|added| {
        // Control tokens are searched in the text as it came, before normalization: marks live there.
        let normalized = added.token.normalized && !added.token.special;
        added.token.clone().normalized(normalized)
    });
    vocabulary.add_tokens(tokens, &model, Some(&normalizer)).map_err(Failure::input)?;
    for NumberedToken { id, token } in &parts.added {
        if !token.content.is_empty() && vocabulary.token_to_id(&token.content, &model) != Some(*id)
        {
            return Err(Failure::input(format!(
                "the added token '{}' has id {id}, which leaves a gap after the vocabulary",
                token.content
            )));
        }
    }

    let mut text = Encoder::new(model);
    text.with_normalizer(Some(normalizer.clone())).map_err(Failure::input)?;
    text.with_pre_tokenizer(parts.pre_tokenizer);
    text.with_post_processor(parts.post_processor);
    text.with_decoder(parts.decoder);
    text.with_added_vocabulary(vocabulary);
    let mut honouring = text.clone();
    text.set_encode_special_tokens(true);
    honouring
        .with_normalizer(Some(MarkRemover { remove: true, inner: normalizer.inner }))
        .map_err(Failure::input)?;
    let special = parts.added.into_iter().map(|added| added.token).filter(|token| token.special);
    let guard = Guard::new(special.map(|token| token.content).collect()).map_err(Failure::input)?;
    Ok(Tokenizer { text, honouring, guard })
}

impl Tokenizer {
    fn encode(&self, text: &[u8], honour: bool, add_special: bool) -> Outcome<Vec<u32>> {
        let text = String::from_utf8_lossy(text);
        let encoder = if honour { &self.honouring } else { &self.text };
        let encoding = encoder.encode_fast(text.as_ref(), add_special).map_err(Failure::input)?;
        Ok(encoding.get_ids().to_vec())
    }

    fn pieces(&self) -> Outcome<Pieces> {
        let vocabulary = self.text.get_vocab(true);
        let added = self.text.get_added_tokens_decoder();
        let decoder = self.text.get_decoder();
        piece_table(vocabulary, &added, decoder, self.text.get_pre_tokenizer())
    }
}

/// # Safety
/// Pointers are valid as include/textbridge.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tb_tokenizer_from_json(
    json: Slice,
    out: *mut *mut Tokenizer,
    error: *mut Buffer,
) -> i32 {
    unsafe {
        enter(
            error,
            || from_json(json.bytes()),
            |tokenizer| out.write(Box::into_raw(Box::new(tokenizer))),
        )
    }
}

/// # Safety
/// Pointers are valid as include/textbridge.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tb_tokenizer_from_tiktoken(
    model: Slice,
    pattern: Slice,
    added: Slice,
    out: *mut *mut Tokenizer,
    error: *mut Buffer,
) -> i32 {
    unsafe {
        enter(
            error,
            || from_tiktoken(model.bytes(), pattern.bytes(), added.bytes()),
            |tokenizer| out.write(Box::into_raw(Box::new(tokenizer))),
        )
    }
}

/// # Safety
/// `tokenizer` came from this library and is not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tb_tokenizer_free(tokenizer: *mut Tokenizer) {
    discard(tokenizer);
}

/// # Safety
/// Pointers are valid as include/textbridge.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tb_tokenizer_encode(
    tokenizer: *const Tokenizer,
    text: Slice,
    honour: u8,
    add_special: u8,
    out: *mut Numbers,
    error: *mut Buffer,
) -> i32 {
    unsafe {
        enter(
            error,
            || (*tokenizer).encode(text.bytes(), honour != 0, add_special != 0),
            |ids| out.write(Numbers::from(ids)),
        )
    }
}

/// # Safety
/// Pointers are valid as include/textbridge.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tb_tokenizer_vocabulary(
    tokenizer: *const Tokenizer,
    out: *mut Vocabulary,
    error: *mut Buffer,
) -> i32 {
    unsafe {
        enter(
            error,
            || (*tokenizer).pieces(),
            |pieces| {
                out.write(Vocabulary {
                    bytes: Buffer::from(pieces.bytes),
                    byte_offsets: Numbers::from(pieces.byte_offsets),
                    pieces: Buffer::from(pieces.pieces),
                    piece_offsets: Numbers::from(pieces.piece_offsets),
                    special: Buffer::from(pieces.special),
                    strips_leading_space: pieces.strips_leading_space as u8,
                })
            },
        )
    }
}

/// The id of a token as the vocabulary spells it, or -1.
///
/// # Safety
/// Pointers are valid as include/textbridge.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tb_tokenizer_find(tokenizer: *const Tokenizer, piece: Slice) -> i64 {
    let piece = unsafe { piece.bytes() };
    let found = std::str::from_utf8(piece)
        .ok()
        .and_then(|piece| unsafe { &*tokenizer }.text.token_to_id(piece));
    found.map_or(-1, i64::from)
}
