//! One vocabulary, two ways in: with control tokens' names as text, and with them honoured except
//! where marked. Both share the model's tables.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokenizers::models::TrainerWrapper;
use tokenizers::models::unigram::Unigram;
use tokenizers::tokenizer::{
    AddedToken, AddedVocabulary, DecoderWrapper, Model, ModelWrapper, NormalizedString, Normalizer,
    NormalizerWrapper, PostProcessorWrapper, PreTokenizerWrapper, Token,
    Tokenizer as FileTokenizer, TokenizerImpl,
};

use crate::ffi::{Buffer, Failure, Numbers, Outcome, Slice, discard, enter};
use crate::guard::{Guard, MARK};
use crate::pieces::{Pieces, piece_table};

type Library<T> = tokenizers::tokenizer::Result<T>;

/// The model's tables, shared by the two encoders.
#[derive(Clone)]
struct SharedModel(Arc<ModelWrapper>);

impl Model for SharedModel {
    type Trainer = TrainerWrapper;

    fn tokenize(&self, sequence: &str) -> Library<Vec<Token>> {
        self.0.tokenize(sequence)
    }
    fn token_to_id(&self, token: &str) -> Option<u32> {
        self.0.token_to_id(token)
    }
    fn id_to_token(&self, id: u32) -> Option<String> {
        self.0.id_to_token(id)
    }
    fn get_vocab(&self) -> HashMap<String, u32> {
        self.0.get_vocab()
    }
    fn get_vocab_size(&self) -> usize {
        self.0.get_vocab_size()
    }
    fn save(&self, folder: &Path, prefix: Option<&str>) -> Library<Vec<PathBuf>> {
        self.0.save(folder, prefix)
    }
    fn get_trainer(&self) -> TrainerWrapper {
        self.0.get_trainer()
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

type Encoder =
    TokenizerImpl<SharedModel, MarkRemover, PreTokenizerWrapper, PostProcessorWrapper, DecoderWrapper>;

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
fn hide_special_pieces(model: ModelWrapper, special: &[String]) -> Library<ModelWrapper> {
    let ModelWrapper::Unigram(unigram) = model else { return Ok(model) };
    let vocabulary = unigram
        .iter()
        .map(|(piece, score)| {
            let hidden = special.iter().any(|name| name == piece);
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

/// The library numbers added tokens itself and only hopes to arrive at the file's ids.
fn check_added_ids(json: &[u8], id_of: impl Fn(&str) -> Option<u32>) -> Outcome<()> {
    #[derive(serde::Deserialize)]
    struct File {
        #[serde(default)]
        added_tokens: Vec<Added>,
    }
    #[derive(serde::Deserialize)]
    struct Added {
        id: u32,
        content: String,
    }
    let file: File = serde_json::from_slice(json).map_err(Failure::input)?;
    for token in &file.added_tokens {
        if !token.content.is_empty() && id_of(&token.content) != Some(token.id) {
            return Err(Failure::input(format!(
                "the added token '{}' has id {}, which leaves a gap after the vocabulary",
                token.content, token.id
            )));
        }
    }
    Ok(())
}

fn build(json: &[u8]) -> Outcome<Tokenizer> {
    let mut file = FileTokenizer::from_bytes(json).map_err(Failure::input)?;
    file.with_truncation(None).map_err(Failure::input)?;
    file.with_padding(None);

    // Special tokens are searched in the text as it came, before normalization: marks live there.
    let mut tokens: Vec<(u32, AddedToken)> = file.get_added_tokens_decoder().into_iter().collect();
    tokens.sort_by_key(|(id, _)| *id);
    let special: Vec<String> =
        tokens.iter().filter(|(_, t)| t.special).map(|(_, t)| t.content.clone()).collect();
    let model = SharedModel(Arc::new(
        hide_special_pieces(file.get_model().clone(), &special).map_err(Failure::input)?,
    ));
    let normalizer = MarkRemover { remove: false, inner: file.get_normalizer().cloned() };
    let mut added = file.get_added_vocabulary().clone();
    if tokens.iter().any(|(_, t)| t.special && t.normalized) {
        added = AddedVocabulary::new();
        let plain = tokens.iter().map(|(_, token)| {
            let normalized = token.normalized && !token.special;
            token.clone().normalized(normalized)
        });
        added.add_tokens(plain, &model, Some(&normalizer)).map_err(Failure::input)?;
    }
    check_added_ids(json, |content| added.token_to_id(content, &model))?;

    let mut text = Encoder::new(model);
    text.with_normalizer(Some(normalizer.clone())).map_err(Failure::input)?;
    text.with_pre_tokenizer(file.get_pre_tokenizer().cloned());
    text.with_post_processor(file.get_post_processor().cloned());
    text.with_decoder(file.get_decoder().cloned());
    text.with_added_vocabulary(added);
    let mut honouring = text.clone();
    text.set_encode_special_tokens(true);
    honouring
        .with_normalizer(Some(MarkRemover { remove: true, inner: normalizer.inner }))
        .map_err(Failure::input)?;
    let guard = Guard::new(special).map_err(Failure::input)?;
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
        enter(error, || build(json.bytes()), |tokenizer| out.write(Box::into_raw(Box::new(tokenizer))))
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
