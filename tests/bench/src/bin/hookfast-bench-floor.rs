//! The floor: hyper as the gateway uses it, reading the body and doing nothing with it.

#![allow(clippy::print_stdout, reason = "it says where it listens")]

use std::convert::Infallible;

use http_body_util::{BodyExt, Empty};
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;

fn main() -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(serve())
}

async fn serve() -> anyhow::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("http://{}/", listener.local_addr()?);
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service_fn(read_body)));
    }
}

async fn read_body(request: Request<Incoming>) -> Result<Response<Empty<Bytes>>, Infallible> {
    let _ = request.into_body().collect().await;
    Ok(Response::new(Empty::new()))
}
