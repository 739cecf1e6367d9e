//! A leaderboard as a web service: axum in front, Plinth behind.
//!
//! `cargo run -p plinth --example leaderboard -- 127.0.0.1:8080 data/plinth.cluster`
//!
//! Without a cluster file it keeps its data in an embedded cluster: give a directory instead.
//!
//! | request | answer |
//! |---|---|
//! | `POST /scores` with `{"player": "ada", "score": 42}` | the player's best score and its rank |
//! | `GET /top?count=10` | the best players, each with rank and score |
//! | `GET /players/ada` | score and rank; 404 if there is no such player |
//! | `GET /leader/next?after=ada` | waits until somebody else than `ada` leads, and tells who |
//!
//! Data, in a subspace for each kind:
//!
//! ```text
//! ("players", player)              → best score
//! ("ranking", score, player)       → nothing: the order is the ranking
//! ("counts", score / WIDTH)        → how many players have a score in this interval
//! ("leader",)                      → the leader's name, to be watched
//! ```
//!
//! The rank of a player is the number of better ones: the counts of whole intervals, and the ranking within one. So it
//! costs few reads, whatever the number of players. All four kinds change in one transaction, so no reader ever sees
//! them disagree.

#![allow(clippy::disallowed_types)] // a program of its own, with a socket of its own

use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use plinth::{Database, Snapshot, Subspace, Transaction};
use serde::{Deserialize, Serialize};

/// Scores of one interval are counted together.
const WIDTH: u64 = 100;
const SCORE_MAX: u64 = 1_000_000;
const NAME_BYTES_MAX: usize = 100;
const TOP_MAX: usize = 1000;

/// What is wrong with a request, or with the database.
enum Failure {
    BadRequest(&'static str),
    NoSuchPlayer,
    Database(plinth::Error),
}

impl From<plinth::Error> for Failure {
    fn from(error: plinth::Error) -> Self {
        Failure::Database(error)
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        match self {
            Failure::BadRequest(what) => (StatusCode::BAD_REQUEST, what.to_owned()),
            Failure::NoSuchPlayer => (StatusCode::NOT_FOUND, "no such player".to_owned()),
            Failure::Database(error) => (StatusCode::SERVICE_UNAVAILABLE, error.to_string()),
        }
        .into_response()
    }
}

#[derive(Clone)]
struct Board {
    db: Database,
    players: Subspace,
    ranking: Subspace,
    counts: Subspace,
    leader: Subspace,
}

#[derive(Deserialize)]
struct Posted {
    player: String,
    score: u64,
}

#[derive(Serialize)]
struct Standing {
    player: String,
    score: u64,
    rank: u64,
}

/// An eight-byte number; a missing one is 0.
fn number(value: Option<plinth::Value>) -> u64 {
    let bytes = value.as_deref().and_then(|value| value.try_into().ok());
    bytes.map_or(0, u64::from_le_bytes)
}

impl Board {
    fn new(db: Database) -> Self {
        let board = Subspace::new(("leaderboard",));
        Board {
            db,
            players: board.subspace(("players",)),
            ranking: board.subspace(("ranking",)),
            counts: board.subspace(("counts",)),
            leader: board.subspace(("leader",)),
        }
    }

    /// 1 for the best. Players of the same score share a rank. A rank is only shown: if others change it at the same
    /// time, that is no reason to try again, so it is read from the snapshot view.
    async fn rank(&self, tr: &Snapshot, score: u64) -> Result<u64, plinth::Error> {
        let interval = score / WIDTH;
        let higher = self.counts.pack((interval + 1,))..self.counts.pack((SCORE_MAX / WIDTH + 1,));
        let beside = self.ranking.pack((score + 1,))..self.ranking.pack(((interval + 1) * WIDTH,));
        let higher = tr.range(higher).all().await?;
        let higher: u64 = higher
            .into_iter()
            .map(|(_, value)| number(Some(value)))
            .sum();
        let beside = tr.range(beside).all().await?.len() as u64;
        Ok(1 + higher + beside)
    }

    /// Keeps the score if it is the player's best. Returns the best.
    async fn put(&self, tr: &Transaction, player: &str, score: u64) -> Result<u64, Failure> {
        let key = self.players.pack((player,));
        let old = tr.get(&key).await?.map(|value| number(Some(value)));
        if let Some(old) = old.filter(|old| *old >= score) {
            return Ok(old);
        }
        if let Some(old) = old {
            tr.clear(self.ranking.pack((old, player)));
            tr.add(self.counts.pack((old / WIDTH,)), -1);
        }
        tr.set(&key, score.to_le_bytes());
        tr.set(self.ranking.pack((score, player)), "");
        tr.add(self.counts.pack((score / WIDTH,)), 1);
        let first = tr.range(&self.ranking).reverse().limit(1);
        let first = first.tuples::<(u64, String)>().try_next().await?;
        let leads = first.is_some_and(|((_, first), _)| first == player);
        let leader = self.leader.pack(());
        if leads && tr.get(&leader).await?.as_deref() != Some(player.as_bytes()) {
            tr.set(leader, player);
        }
        Ok(score)
    }
}

async fn post_score(
    State(board): State<Board>,
    Json(posted): Json<Posted>,
) -> Result<Json<Standing>, Failure> {
    if posted.player.is_empty() || posted.player.len() > NAME_BYTES_MAX {
        return Err(Failure::BadRequest("a player's name has 1 to 100 bytes"));
    }
    if posted.score > SCORE_MAX {
        return Err(Failure::BadRequest("a score is at most 1,000,000"));
    }
    let standing = board.db.try_run(async |tr| {
        let score = board.put(&tr, &posted.player, posted.score).await?;
        let rank = board.rank(&tr.snapshot(), score).await?;
        let player = posted.player.clone();
        Ok(Standing {
            player,
            score,
            rank,
        })
    });
    standing.await.map(Json)
}

#[derive(Deserialize)]
struct Top {
    count: Option<usize>,
}

async fn top(
    State(board): State<Board>,
    Query(top): Query<Top>,
) -> Result<Json<Vec<Standing>>, Failure> {
    let count = top.count.unwrap_or(10).min(TOP_MAX);
    let read = async |tr: Transaction| {
        let rows = tr.range(&board.ranking).reverse().limit(count);
        rows.tuples::<(u64, String)>().all().await
    };
    let mut standings: Vec<Standing> = Vec::new();
    for (place, ((score, player), _)) in (1..).zip(board.db.run(read).await?) {
        let rank = match standings.last() {
            Some(above) if above.score == score => above.rank,
            _ => place,
        };
        standings.push(Standing {
            player,
            score,
            rank,
        });
    }
    Ok(Json(standings))
}

async fn player(
    State(board): State<Board>,
    Path(player): Path<String>,
) -> Result<Json<Standing>, Failure> {
    let standing = board.db.try_run(async |tr| {
        let score = tr.get(board.players.pack((&player,))).await?;
        let score = number(Some(score.ok_or(Failure::NoSuchPlayer)?));
        let rank = board.rank(&tr.snapshot(), score).await?;
        let player = player.clone();
        Ok(Standing {
            player,
            score,
            rank,
        })
    });
    standing.await.map(Json)
}

#[derive(Deserialize)]
struct After {
    after: Option<String>,
}

/// Waits until somebody else leads.
async fn next_leader(
    State(board): State<Board>,
    Query(After { after }): Query<After>,
) -> Result<String, Failure> {
    let after = after.unwrap_or_default();
    loop {
        let look = board.db.run(async |tr| {
            let leader = tr.get(board.leader.pack(())).await?.unwrap_or_default();
            let leader = String::from_utf8_lossy(&leader).into_owned();
            let watch = (leader == after).then(|| tr.watch(board.leader.pack(())));
            Ok((leader, watch))
        });
        match look.await? {
            (leader, None) => return Ok(leader),
            (_, Some(changed)) => changed.await?,
        }
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [listen, place] = &arguments[..] else {
        return Err("usage: leaderboard ADDRESS:PORT (CLUSTER-FILE | DIRECTORY)".into());
    };
    let db = match std::path::Path::new(place).extension() {
        Some(extension) if extension == "cluster" => Database::open(place).await?,
        _ => Database::open_embedded(place).await?,
    };
    let board = Board::new(db);
    let service = Router::new()
        .route("/scores", post(post_score))
        .route("/top", get(top))
        .route("/players/{player}", get(player))
        .route("/leader/next", get(next_leader))
        .with_state(board);
    let listener = tokio::net::TcpListener::bind(listen).await?;
    println!("leaderboard at http://{}", listener.local_addr()?);
    axum::serve(listener, service).await?;
    Ok(())
}
